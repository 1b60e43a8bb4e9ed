#pragma once
// How the values of a method travel. LibTorch-free.
#include "atoll/codec/codec.h"
#include "atoll/collective/averager.h"
#include "atoll/method/sync_options.h"

namespace atl::method {

/// CocktailSGD scatters: the owners of shares keep residuals. What another codec leaves out
/// is kept by its sender alone, so its values are gathered; so are those of methods that quantise
/// once, unless the codec is exact. The others gather between two members, where that costs no more
/// bytes than scattering, quantises once instead of twice, and takes one trip.
collective::Topology topology_of(const SyncOptions& options, const codec::Codec& codec,
                                 int num_members);

}  // namespace atl::method
