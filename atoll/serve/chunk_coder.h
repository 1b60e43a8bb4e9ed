#pragma once
// Between a cache's pages and the blobs of a chunk, at the level that is asked for: 0 keeps every
// bit, layer by layer; those behind it are the transform levels of a profile (kv/profile.h), for
// whole groups of layers, and keep other layers to the bit. Thread-safe.
//
// Shapes: those of model/kv_pages.h.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/chain/messages.h"
#include "atoll/kv/chunk.h"
#include "atoll/kv/lossy_coder.h"
#include "atoll/kv/profile.h"
#include "atoll/kv/turns.h"
#include "atoll/model/kv_pages.h"

namespace atl::serve {

/// As ChunkCoder counts levels.
inline size_t level_of(const kv::Part& part) {
  return part.level == kv::Level::kExact ? 0 : size_t{part.step} + 1;
}

/// How a model's keys and values may be rounded.
struct Rounding {
  kv::Profile profile;
  uint64_t profile_id = 0;
  /// How keys of so many positions are turned from the first of them on. Throws InputError where
  /// they are not to be rounded.
  std::function<kv::Turns(int64_t begin, int64_t count)> turns;
};

class ChunkCoder {
 public:
  /// Where a chunk begins, and how its keys turn: the same for all of its parts.
  struct Place {
    int64_t begin = 0;
    std::optional<kv::Turns> turns;
  };

  /// `model`: its digest, with what it is served as. `rounding`: null, level 0 alone.
  ChunkCoder(std::string model, model::PageShape shape, std::shared_ptr<const Rounding> rounding);

  const model::PageShape& shape() const { return shape_; }
  size_t num_levels() const;
  /// How these layers are coded at that level, in order.
  std::vector<kv::Part> parts_of(chain::Span layers, size_t level) const;
  /// The same where each layer is said to have come at a level of its own.
  std::vector<kv::Part> parts_at(chain::Span layers, std::span<const uint8_t> levels) const;
  /// Of a chunk with that first position: without turns where none of it is, or may be, rounded.
  Place place_of(int64_t begin, bool rounds) const;
  /// Of pages of a chunk, whose first layer is `first_layer`. Throws InputError where it cannot be
  /// rounded.
  Bytes encode(const kv::Part& part, const Place& place, std::span<const at::Tensor> pages,
               int32_t first_layer) const;
  /// The inverse. Throws InputError where the blob is damaged or of something else.
  void decode(std::span<const std::byte> blob, const kv::Part& part, const Place& place,
              std::span<const at::Tensor> pages, int32_t first_layer) const;

 private:
  kv::BlobHead head_of(const kv::Part& part, int64_t begin) const;
  kv::Lossy lossy_at(const Place& place) const;

  const std::string model_;
  const model::PageShape shape_;
  const std::shared_ptr<const Rounding> rounding_;
  std::vector<chain::Span> units_;  // Layers of groups that overlap, in order.
};

}  // namespace atl::serve
