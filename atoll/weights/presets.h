#pragma once
// Models that others have trained, by name: sizes alone, for training one's own. Free of LibTorch.
#include <cstdint>
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::weights {

/// "pythia-14m" ... "pythia-12b" (Biderman et al. 2023), "olmo2-14m" ... "olmo2-32b" (OLMo team
/// 2024, and the ladder of OLMo-core), "diloco-60m" ... (Douillard et al. 2023, table 1) and
/// "chinchilla-35m" ... (Charles et al. 2025, table 3). The last two are Qwen 3s here: their
/// papers' MLPs have two matrices and ours three, two thirds as wide, so that parameters are as
/// many.
std::vector<std::string_view> preset_names();

/// Throws UsageError with all names.
ModelConfig preset(std::string_view name);

/// One like the "chinchilla" presets, of any size: as many heads of 64 or more as divide the width
/// evenly, or one. `hidden_size` is even.
ModelConfig chinchilla(int64_t num_layers, int64_t hidden_size, int64_t vocab_size);

}  // namespace atl::weights
