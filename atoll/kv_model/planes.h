#pragma once
// Between a model's caches and what codecs of keys and values take.
//
// Shapes: P = planes (of each of the cache's layers the keys, then the values), C = channels (heads
// times head size), T = tokens.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/kv/turns.h"
#include "atoll/model/kv_cache.h"
#include "atoll/weights/config.h"

namespace atl::kv_model {

/// The bits of bfloat16s (P, C, T) of the first `count` tokens of a cache with all of these layers.
/// Throws InputError where the cache is of another type.
std::vector<uint16_t> planes_of(const model::KvCache& cache, model::LayerRange layers,
                                int64_t count);

/// Appends such tokens to a cache.
void append_planes(std::span<const uint16_t> kv_PCT, const weights::ModelConfig& config,
                   model::LayerRange layers, model::KvCache& cache);

/// How keys at `count` positions from `begin` on are turned in all of a model's layers. Throws
/// InputError where the model turns those of a long text otherwise.
kv::Turns turns_of(const weights::ModelConfig& config, int64_t begin, int64_t count);

}  // namespace atl::kv_model
