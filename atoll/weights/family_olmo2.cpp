// OLMo 2 (OLMo team 2024, section 3.1): the residual stream itself is read and what a part adds to
// it is normalised; norms over all queries and all keys.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kOlmo2 = {.design = {.norm_place = NormPlace::kBehind, .qk_norm = QkNorm::kWhole},
                          .usual_norm_eps = 1e-5};

}  // namespace

Family olmo2() { return gated_family<kOlmo2>("olmo2", "Olmo2ForCausalLM", {"attention_bias"}); }

}  // namespace atl::weights
