#include "atoll/sync/single.h"

namespace atl::sync {

Single::Single(Replica replica) : replica_(std::move(replica)) {}

Result<void> Single::reduce_gradients(int64_t) { return {}; }
Result<void> Single::after_step(int64_t) { return {}; }
bool Single::syncs_after(int64_t) const { return true; }
at::Tensor Single::global_parameters() const { return replica_.values_P; }
std::vector<std::pair<std::string, at::Tensor>> Single::state() { return {}; }
void Single::restore_global(const at::Tensor&) {}  // The live parameters are the global ones.

}  // namespace atl::sync
