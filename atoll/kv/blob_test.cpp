#include "atoll/kv/blob.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/kv/exact_coder.h"

namespace atl::kv {
namespace {

constexpr BlobHead head_of(uint32_t num_tokens) {
  return {.model = "m",
          .first_layer = 2,
          .end_layer = 4,
          .num_channels = 6,
          .begin = 32,
          .num_tokens = num_tokens};
}

uint16_t bf16(double value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

/// Channels of other sizes, some with a mean, one of zeros.
std::vector<uint16_t> drawn(const BlobHead& head, uint64_t seed) {
  std::vector<uint16_t> kv_PCT;
  for (size_t channel = 0; channel < head.num_planes() * head.num_channels; ++channel) {
    const double size = channel % 6 == 3 ? 0 : std::pow(2.0, static_cast<double>(channel % 5));
    const double mean = channel % 4 == 0 ? 3 * size : 0;
    for (size_t t = 0; t < head.num_tokens; ++t)
      kv_PCT.push_back(bf16(mean + size * random_normal(seed, channel, t)));
  }
  return kv_PCT;
}

ModelTables tables_of(const BlobHead& head) {
  Bytes bytes;
  const std::vector<uint16_t> kv_PCT = drawn(head, 77);
  for (size_t i = 0; i < 2 * 2 * head.num_channels; ++i)  // Of layers before those.
    ValueTable(0, std::vector<uint32_t>{1}).write(bytes);
  for (size_t i = 0; i < kv_PCT.size(); i += head.num_tokens) {
    std::vector<uint32_t> counts(256);
    for (size_t t = 0; t < head.num_tokens; ++t) ++counts[exponent_of(kv_PCT[i + t])];
    ValueTable(0, counts).write(bytes);
  }
  return ModelTables(bytes);
}

TEST(Blob, EveryBitComesBack) {
  for (const uint32_t num_tokens : {1, 2, 15, 33, 500}) {
    const BlobHead head = head_of(num_tokens);
    const ModelTables tables = tables_of(head_of(400));
    std::vector<uint16_t> kv_PCT = drawn(head, num_tokens);
    for (const bool is_odd : {false, true}) {
      // Not a number, infinities, zeros of both signs and the smallest there are, too.
      if (is_odd) {
        const uint16_t odd[] = {0x7FC1, 0x7F80, 0xFF80, 0, 0x8000, 1, 0x8001, 0xFFFF};
        for (size_t i = 0; i < kv_PCT.size(); i += 3) kv_PCT[i] = odd[i % std::size(odd)];
      }
      for (const ModelTables& with : {ModelTables(), tables}) {
        const Bytes blob = encode_blob(head, kv_PCT, with);
        EXPECT_EQ(read_blob_head(blob), head);
        EXPECT_EQ(decode_blob(blob, head, with), kv_PCT);
        if (is_odd || num_tokens < 500) continue;
        const double bits =
            8.0 * static_cast<double>(blob.size()) / static_cast<double>(kv_PCT.size());
        EXPECT_LT(bits, with.id() == 0 ? 10.8 : 10.5);
      }
    }
  }
}

TEST(Blob, WhatIsDamagedIsRefused) {
  const BlobHead head = head_of(9);
  const Bytes blob = encode_blob(head, drawn(head, 1));
  for (size_t size = 0; size < blob.size(); ++size) {
    const auto cut = std::span(blob).first(size);
    EXPECT_THROW(read_blob_head(cut), InputError);
    EXPECT_THROW(decode_blob(cut, head), InputError);
  }
  for (size_t bit = 0; bit < 8 * blob.size(); ++bit) {
    Bytes flipped = blob;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THROW(decode_blob(flipped, head), InputError);
  }
  Bytes longer = blob;
  longer.push_back({});
  EXPECT_THROW(decode_blob(longer, head), InputError);
}

TEST(Blob, WhatIsOfSomethingElseIsRefused) {
  const BlobHead head = head_of(9);
  const ModelTables tables = tables_of(head_of(400));
  const std::vector<uint16_t> kv_PCT = drawn(head, 1);
  const Bytes blob = encode_blob(head, kv_PCT, tables);
  const std::function<void(BlobHead&)> changes[] = {
      [](BlobHead& other) { other.model = "n"; }, [](BlobHead& other) { ++other.first_layer; },
      [](BlobHead& other) { ++other.end_layer; }, [](BlobHead& other) { ++other.num_channels; },
      [](BlobHead& other) { ++other.begin; },     [](BlobHead& other) { ++other.num_tokens; }};
  for (const auto& change : changes) {
    BlobHead other = head;
    change(other);
    EXPECT_THROW(decode_blob(blob, other, tables), InputError);
  }
  EXPECT_THROW(decode_blob(blob, head), InputError);
  EXPECT_THROW(decode_blob(blob, head, tables_of(head_of(399))), InputError);
  // Without tables of the model it has its own, whatever the reader's.
  EXPECT_EQ(decode_blob(encode_blob(head, kv_PCT), head, tables), kv_PCT);
}

}  // namespace
}  // namespace atl::kv
