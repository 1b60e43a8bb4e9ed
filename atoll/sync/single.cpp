#include "atoll/sync/single.h"

namespace atl::sync {

at::Tensor Single::global_parameters() const { return replica_.values_P; }
void Single::restore_global(const at::Tensor&) {}  // The live parameters are the global ones.

}  // namespace atl::sync
