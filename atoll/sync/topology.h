#pragma once
// How the values of a method travel. LibTorch-free.
#include "atoll/codec/codec.h"
#include "atoll/collective/averager.h"
#include "atoll/sync/options.h"

namespace atl::sync {

/// CocktailSGD scatters: the owners of shares keep residuals. What a sparse codec left out is kept
/// by its sender, so SparseLoCo and DeMo gather; so does Streaming DiLoCo with a lossy codec, which
/// then quantises once. The others gather between two members, where that costs no more bytes than
/// scattering, quantises once instead of twice, and takes one trip.
collective::Topology topology_of(const SyncOptions& options, const codec::Codec& codec,
                                 int num_members);

}  // namespace atl::sync
