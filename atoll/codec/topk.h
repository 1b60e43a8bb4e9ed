#pragma once
// The largest values by magnitude, with their positions (positions.h). Of equal magnitudes those at
// the lower positions count as larger, so the choice is the same on every machine.
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

/// Keeps round(share * n) of n values, at least one.
std::unique_ptr<Codec> make_topk_codec(std::string_view stage, double share,
                                       std::unique_ptr<Codec> inner);

/// Keeps num_kept of each chunk of chunk_size values (of a shorter last one that share, rounded
/// up); SparseLoCo (2508.15706): 64 of 4096.
std::unique_ptr<Codec> make_chunk_topk_codec(std::string_view stage, size_t num_kept,
                                             size_t chunk_size, std::unique_ptr<Codec> inner);

}  // namespace atl::codec
