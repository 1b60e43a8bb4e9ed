#pragma once
// How attention_kernel.cpp and attention_bf16.cpp cut a head's queries into tiles. Only for those.
#include <algorithm>
#include <cstdint>

#include "atoll/model/attention_kernel.h"

namespace atl::model {

constexpr int64_t kTile = 64;  // Queries at a time.

/// Some queries, and the keys that any of them sees.
struct Tile {
  int64_t begin = 0;  // First query.
  int64_t num_queries = 0;
  int64_t first_key = 0;
  int64_t num_keys = 0;
  int64_t window = 0;

  /// What query i sees, counted from the first key: [seen_from, seen_to).
  int64_t seen_to(int64_t i) const { return begin + i + 1 - first_key; }
  int64_t seen_from(int64_t i) const { return std::max<int64_t>(seen_to(i) - window, 0); }
};

inline Tile tile_at(const AttentionShape& shape, int64_t begin) {
  Tile tile{.begin = begin, .num_queries = std::min(kTile, shape.positions - begin)};
  tile.window = shape.window > 0 ? shape.window : shape.positions;
  tile.first_key = std::max<int64_t>(begin + 1 - tile.window, 0);
  tile.num_keys = begin + tile.num_queries - tile.first_key;
  return tile;
}

}  // namespace atl::model
