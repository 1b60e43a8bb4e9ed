#include "atoll/method/topology.h"

#include "atoll/method/method.h"

namespace atl::method {

collective::Topology topology_of(const SyncOptions& options, const codec::Codec& codec,
                                 int num_members) {
  using enum collective::Topology;
  const Method& method = method_of(options);
  if (method.left_out == LeftOut::kBothSides) return kScatter;
  if (!codec.is_dense() || (method.encodes_once && codec.bits_per_value() < 32)) return kGather;
  return num_members <= 2 ? kGather : kScatter;
}

}  // namespace atl::method
