#include "atoll/sync/topology.h"

namespace atl::sync {

collective::Topology topology_of(const SyncOptions& options, const codec::Codec& codec,
                                 int num_members) {
  using enum collective::Topology;
  if (options.method == "cocktail_sgd") return kScatter;
  if (options.method == "sparse_loco" || options.method == "demo") return kGather;
  if (options.method == "streaming_diloco" && codec.bits_per_value() < 32) return kGather;
  return num_members <= 2 ? kGather : kScatter;
}

}  // namespace atl::sync
