#include "atoll/serve/chunk_coder.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/kv/blob.h"

namespace atl::serve {
namespace {

/// Keys and values may be grouped otherwise: layers that any group has together stay together.
std::vector<chain::Span> units_of(std::span<const kv::Group> groups) {
  std::vector<chain::Span> units;
  for (const kv::Group& group : groups) units.push_back({group.first_layer, group.end_layer});
  std::ranges::sort(units, {}, &chain::Span::begin);
  std::vector<chain::Span> joined;
  for (const chain::Span& unit : units) {
    if (joined.empty() || unit.begin >= joined.back().end) {
      joined.push_back(unit);
    } else {
      joined.back().end = std::max(joined.back().end, unit.end);
    }
  }
  return joined;
}

}  // namespace

ChunkCoder::ChunkCoder(std::string model, model::PageShape shape,
                       std::shared_ptr<const Rounding> rounding)
    : model_(std::move(model)), shape_(shape), rounding_(std::move(rounding)) {
  if (rounding_) units_ = units_of(rounding_->profile.groups);
}

size_t ChunkCoder::num_levels() const {
  return units_.empty() ? 1 : 1 + rounding_->profile.transforms.size();
}

std::vector<kv::Part> ChunkCoder::parts_of(chain::Span layers, size_t level) const {
  std::vector<kv::Part> parts;
  auto unit = units_.begin();
  for (int32_t layer = layers.begin; layer < layers.end;) {
    while (level > 0 && unit != units_.end() && unit->begin < layer) ++unit;
    const bool is_whole =
        level > 0 && unit != units_.end() && unit->begin == layer && unit->end <= layers.end;
    parts.push_back({.first_layer = layer, .end_layer = layer + 1});
    if (is_whole) {
      parts.back().end_layer = unit->end;
      parts.back().level = kv::Level::kTransform;
      parts.back().step = static_cast<uint8_t>(level - 1);
      parts.back().profile = rounding_->profile_id;
    }
    layer = parts.back().end_layer;
  }
  return parts;
}

std::vector<kv::Part> ChunkCoder::parts_at(chain::Span layers,
                                           std::span<const uint8_t> levels) const {
  ATOLL_CHECK(std::ssize(levels) == layers.size());
  std::vector<kv::Part> parts;
  for (int32_t layer = layers.begin; layer < layers.end; layer = parts.back().end_layer) {
    const size_t level = levels[static_cast<size_t>(layer - layers.begin)];
    parts.push_back(parts_of({layer, layers.end}, level).front());
  }
  return parts;
}

kv::BlobHead ChunkCoder::head_of(const kv::Part& part, int64_t begin) const {
  return {.level = part.level,
          .step = part.step,
          .model = model_,
          .first_layer = part.first_layer,
          .end_layer = part.end_layer,
          .num_channels = static_cast<uint32_t>(shape_.num_channels()),
          .begin = begin,
          .num_tokens = static_cast<uint32_t>(kv::kChunkTokens)};
}

ChunkCoder::Place ChunkCoder::place_of(int64_t begin, bool rounds) const {
  Place place{.begin = begin, .turns = {}};
  if (!rounds || !rounding_) return place;
  try {
    place.turns = rounding_->turns(begin, kv::kChunkTokens);
  } catch (const InputError&) {  // Who codes it says so.
  }
  return place;
}

kv::Lossy ChunkCoder::lossy_at(const Place& place) const {
  if (!place.turns) throw InputError("keys of these positions are not to be rounded");
  return {rounding_->profile, rounding_->profile_id, *place.turns};
}

Bytes ChunkCoder::encode(const kv::Part& part, const Place& place,
                         std::span<const at::Tensor> pages, int32_t first_layer) const {
  std::vector<uint16_t> bits_PCT;
  for (int32_t layer = part.first_layer; layer < part.end_layer; ++layer) {
    const auto of_layer = model::bits_2CT(pages, layer - first_layer, shape_);
    bits_PCT.insert(bits_PCT.end(), of_layer.begin(), of_layer.end());
  }
  const kv::BlobHead head = head_of(part, place.begin);
  if (part.level == kv::Level::kExact) return kv::encode_blob(head, bits_PCT);
  // All later tokens attend to the text's first ones; its last ones are in a chunk that is not
  // asked for at such a level.
  const kv::ExactEnds ends{.first = place.begin == 0 ? kv::ExactEnds{}.first : 0, .last = 0};
  return kv::encode_blob(head, bits_PCT, lossy_at(place), ends);
}

void ChunkCoder::decode(std::span<const std::byte> blob, const kv::Part& part, const Place& place,
                        std::span<const at::Tensor> pages, int32_t first_layer) const {
  const kv::BlobHead head = head_of(part, place.begin);
  const std::vector<uint16_t> bits_PCT = part.level == kv::Level::kExact
                                             ? kv::decode_blob(blob, head)
                                             : kv::decode_blob(blob, head, lossy_at(place));
  const size_t size = bits_PCT.size() / static_cast<size_t>(part.num_layers());
  for (int32_t i = 0; i < part.num_layers(); ++i) {
    model::write_bits(std::span(bits_PCT).subspan(static_cast<size_t>(i) * size, size),
                      part.first_layer + i - first_layer, shape_, pages);
  }
}

}  // namespace atl::serve
