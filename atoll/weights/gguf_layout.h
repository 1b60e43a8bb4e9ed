#pragma once
// How llama.cpp's files name and lay out the tensors of the families that they have, for those who
// read them and who write them. Pure functions.
#include <array>
#include <string>
#include <string_view>

#include "atoll/weights/families.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

/// How the rows of queries, keys and values lie.
enum class GgufRows {
  kAsOurs,
  kTurningNeighbours,  // Pairs of a head that turn together are neighbours; with us one half of the
                       // head turns with the other.
  kQueriesFirst,       // Of all heads, then all keys, then all values; with us head by head.
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture,
  std::string_view family;  // and ours.
  GgufRows rows = GgufRows::kAsOurs;
  bool needs_head = false;  // A tied model has its embedding twice.
  /// In a plain MLP, where the file does not say it.
  std::string_view activation = "gelu";
  /// The weights of a token's experts add up to 1; files do not say it.
  bool router_normalises = true;
};

/// A key of ours, behind the architecture's name: ModelConfig::activation.
inline constexpr const char* kGgufActivation = "hidden_activation";

inline constexpr std::array kGgufArchitectures = {
    GgufArchitecture{"llama", "llama", GgufRows::kTurningNeighbours},
    GgufArchitecture{"llama", "mixtral", GgufRows::kTurningNeighbours},
    GgufArchitecture{"qwen2", "qwen2"},
    GgufArchitecture{"qwen3", "qwen3"},
    GgufArchitecture{"qwen3moe", "qwen3_moe"},
    GgufArchitecture{"olmo2", "olmo2"},
    GgufArchitecture{.name = "olmoe", .family = "olmoe", .router_normalises = false},
    GgufArchitecture{"gpt2", "gpt2", GgufRows::kAsOurs, false, "gelu_tanh"},
    GgufArchitecture{"gptneox", "gpt_neox", GgufRows::kQueriesFirst, true}};

/// Throws InputError naming the families that have one.
const GgufArchitecture& gguf_architecture_of(const ModelConfig& config);

/// By how much each pair of a head is slowed, where that follows Llama 3's rule.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
std::vector<double> llama3_factors(const ModelConfig& config);

/// Settings are singles there: the number with the fewest digits that is this one as a single.
double as_single(double value);

/// Those of all experts are one tensor there.
std::string gguf_name_of(const ParameterSpec& spec);
/// A matrix has a row for each output. Of one expert where the tensor is that of all.
std::vector<int64_t> gguf_shape_of(const ParameterSpec& spec);
/// A vector whose elements lie otherwise than with us is one of rows of one.
int64_t gguf_num_rows(const std::vector<int64_t>& shape, const RowOrder& order);
RowOrder gguf_order_of(const ParameterSpec& spec, const ModelConfig& config,
                       const GgufArchitecture& architecture);

}  // namespace atl::weights
