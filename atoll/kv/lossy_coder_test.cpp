#include "atoll/kv/lossy_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/random.h"
#include "atoll/codec/float_bits.h"
#include "atoll/kv/blob.h"
#include "atoll/testing/sample_profile.h"

namespace atl::kv {
namespace {

uint16_t bf16(double value) {
  return static_cast<uint16_t>(codec::round_to_bf16(codec::bits_of(static_cast<float>(value))));
}
double value_of(uint16_t bits) { return double{codec::float_of(uint32_t{bits} << 16)}; }

struct Whole : SampleProfile {
  using SampleProfile::SampleProfile;
  Lossy with(const Turns& turns) const { return {profile, id, turns}; }
};

BlobHead head_of(Level level, uint8_t step, uint32_t num_tokens) {
  return {.level = level,
          .step = step,
          .model = "m",
          .first_layer = 0,
          .end_layer = kLayers,
          .num_channels = kChannels,
          .begin = 0,
          .num_tokens = num_tokens};
}

std::vector<uint16_t> drawn(const BlobHead& head, uint64_t seed) {
  std::vector<uint16_t> kv_PCT;
  for (size_t i = 0; i < head.num_values(); ++i) kv_PCT.push_back(bf16(random_normal(seed, 0, i)));
  return kv_PCT;
}

bool is_exact(const BlobHead& head, std::span<const uint16_t> a_PCT,
              std::span<const uint16_t> b_PCT, size_t token) {
  for (size_t i = token; i < a_PCT.size(); i += head.num_tokens) {
    if (a_PCT[i] != b_PCT[i]) return false;
  }
  return true;
}

TEST(LossyCoder, ErrsByTheStepWhateverTheTokensAndKeepsTheEnds) {
  const Whole whole;
  for (const uint32_t num_tokens : {1, 20, 21, 22, 33, 52, 53, 100}) {
    const Turns turns = turns_for(num_tokens);
    const BlobHead head = head_of(Level::kTransform, 0, num_tokens);
    const auto kv_PCT = drawn(head, num_tokens);
    const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
    EXPECT_EQ(read_blob_head(blob), head);
    const auto back_PCT = decode_blob(blob, head, whole.with(turns));
    for (size_t t = 0; t < num_tokens; ++t) {
      if (t < 4 || t + 16 >= num_tokens) {
        EXPECT_TRUE(is_exact(head, kv_PCT, back_PCT, t));
      }
      double error = 0;
      for (size_t i = t; i < kv_PCT.size(); i += num_tokens) {
        error += std::pow(value_of(kv_PCT[i]) - value_of(back_PCT[i]), 2);
      }
      // Turning and orthonormal rows keep lengths; a number is off by 0.6 steps at most, and a
      // half of a bfloat16's last bit comes behind that.
      EXPECT_LT(std::sqrt(error / static_cast<double>(head.num_planes() * kChannels)),
                0.6 * kStep + 0.01);
    }
  }
}

TEST(LossyCoder, LevelsWithFewerComponentsAndCacheGensComeBackToo) {
  const Whole whole;
  const Turns turns = turns_for(60);
  for (const auto& [level, step, most] :
       {std::tuple{Level::kTransform, 1, 2.5}, std::tuple{Level::kVectorwise, 0, 0.2}}) {
    const BlobHead head = head_of(level, static_cast<uint8_t>(step), 60);
    const auto kv_PCT = drawn(head, 5);
    const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
    const auto back_PCT = decode_blob(blob, head, whole.with(turns));
    double error = 0;
    for (size_t i = 0; i < kv_PCT.size(); ++i) {
      error += std::pow(value_of(kv_PCT[i]) - value_of(back_PCT[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / static_cast<double>(kv_PCT.size())), most);
    EXPECT_GT(error, 0);
  }
}

TEST(LossyCoder, LayersWhoseGroupIsNotWholeAreCodedByCacheGens) {
  const Whole whole;
  const Turns turns = turns_for(50);
  BlobHead head = head_of(Level::kTransform, 0, 50);
  head.first_layer = 1;
  const auto kv_PCT = drawn(head, 3);
  const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
  const auto back_PCT = decode_blob(blob, head, whole.with(turns));
  for (size_t i = 0; i < kv_PCT.size(); ++i) {
    ASSERT_NEAR(value_of(kv_PCT[i]), value_of(back_PCT[i]), 4 * 0.6 * kStep);
  }
}

TEST(LossyCoder, TokensThatALevelHasNoNumbersForStayExact) {
  const Whole whole;
  const Turns turns = turns_for(60);
  for (const Level level : {Level::kTransform, Level::kVectorwise}) {
    const BlobHead head = head_of(level, 0, 60);
    auto kv_PCT = drawn(head, 8);
    const uint16_t odd[] = {0x7FC1, 0x7F80, 0xFF80,
                            0x7F7F};  // Not a number, infinite, the largest.
    for (size_t i = 0; i < std::size(odd); ++i) kv_PCT[7 * 60 + 10 + i] = odd[i];
    const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
    const auto back_PCT = decode_blob(blob, head, whole.with(turns));
    for (size_t t = 10; t < 14; ++t) EXPECT_TRUE(is_exact(head, kv_PCT, back_PCT, t));
    EXPECT_FALSE(is_exact(head, kv_PCT, back_PCT, 20));
    // All of them.
    for (uint16_t& value : kv_PCT) value = 0xFFFF;
    const Bytes none = encode_blob(head, kv_PCT, whole.with(turns), {});
    EXPECT_EQ(decode_blob(none, head, whole.with(turns)), kv_PCT);
  }
}

TEST(LossyCoder, TokensOfZerosAndChannelsThatAreAllAlike) {
  const Whole whole;
  const Turns turns = turns_for(40);
  for (const Level level : {Level::kTransform, Level::kVectorwise}) {
    const BlobHead head = head_of(level, 0, 40);
    for (const double value : {0.0, 1.5, -70.0}) {
      const std::vector<uint16_t> kv_PCT(head.num_values(), bf16(value));
      const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
      for (const uint16_t back : decode_blob(blob, head, whole.with(turns))) {
        ASSERT_NEAR(value_of(back), value, 4 * 0.6 * kStep);
      }
    }
  }
}

TEST(LossyCoder, AnotherProfileOrLevelIsRefused) {
  const Whole whole;
  const Whole other("n");
  const Turns turns = turns_for(40);
  const BlobHead head = head_of(Level::kTransform, 0, 40);
  const auto kv_PCT = drawn(head, 8);
  const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
  EXPECT_THROW(decode_blob(blob, head, other.with(turns)), InputError);
  EXPECT_THROW(decode_blob(blob, head, {whole.profile, whole.id + 1, turns}), InputError);
  EXPECT_THROW(encode_blob(head, kv_PCT, other.with(turns), {}), InputError);
  EXPECT_THROW(encode_blob(head_of(Level::kTransform, 2, 40), kv_PCT, whole.with(turns), {}),
               InputError);
  EXPECT_THROW(decode_blob(blob, head_of(Level::kTransform, 1, 40), whole.with(turns)), InputError);
}

/// With a checksum that is right.
Bytes sealed(Bytes blob) {
  blob.resize(blob.size() - sizeof(uint64_t));
  const uint64_t checksum = xxh3(blob.data(), blob.size());
  const auto bytes = std::as_bytes(std::span(&checksum, 1));
  blob.insert(blob.end(), bytes.begin(), bytes.end());
  return blob;
}

TEST(LossyCoder, WhatIsDamagedIsRefusedOrReadAsSomethingElse) {
  const Whole whole;
  const Turns turns = turns_for(25);
  for (const Level level : {Level::kTransform, Level::kVectorwise}) {
    const BlobHead head = head_of(level, 0, 25);
    const Bytes blob = encode_blob(head, drawn(head, 1), whole.with(turns), {});
    for (size_t size = 0; size < blob.size(); ++size) {
      const auto cut = std::span(blob).first(size);
      EXPECT_THROW(decode_blob(cut, head, whole.with(turns)), InputError);
      if (size < 60) continue;
      const Bytes shorter = sealed(Bytes(cut.begin(), cut.end()));
      EXPECT_THROW(decode_blob(shorter, head, whole.with(turns)), InputError);
    }
    for (size_t i = 0; i < blob.size(); ++i) {
      Bytes changed = blob;
      changed[i] ^= std::byte{0x55};
      EXPECT_THROW(decode_blob(changed, head, whole.with(turns)), InputError);
      try {
        EXPECT_EQ(decode_blob(sealed(changed), head, whole.with(turns)).size(), head.num_values());
      } catch (const InputError&) {
        continue;
      }
    }
  }
}

TEST(LossyCoder, BytesAreTheSameOnEveryMachine) {
  const Whole whole;
  // Not of sines, which C libraries round differently.
  Turns turns{.num_tokens = 40,
              .head_size = kHeadSize,
              .tables = {TurnTable()},
              .table_of_layer = {0, 0, -1, 0}};
  turns.tables[0] = {.cos_RT = std::vector<float>(80, 0.6F),
                     .sin_RT = std::vector<float>(80, 0.8F)};
  for (const auto& [level, blob_hash, values_hash] :
       {std::tuple{Level::kTransform, 11542270607306865197U, 6991137309894004454U},
        std::tuple{Level::kVectorwise, 4428093749707020096U, 10281851214538515463U}}) {
    const BlobHead head = head_of(level, 0, 40);
    std::vector<uint16_t> kv_PCT;
    for (size_t i = 0; i < head.num_values(); ++i) {
      kv_PCT.push_back(static_cast<uint16_t>(0x3F00 + (i * 37 % 256) + (i % 2 << 15)));
    }
    const Bytes blob = encode_blob(head, kv_PCT, whole.with(turns), {});
    const auto back = decode_blob(blob, head, whole.with(turns));
    EXPECT_EQ(xxh3(blob.data(), blob.size()), blob_hash);
    EXPECT_EQ(xxh3(back.data(), back.size() * sizeof(uint16_t)), values_hash);
  }
}

TEST(Profile, ComesBackAndIsRefusedWhereItIsDamaged) {
  Profile made = profile_of("m");
  const Whole whole;
  write_profile(made);
  EXPECT_EQ(whole.profile.model, "m");
  EXPECT_EQ(whole.profile.means_PC, made.means_PC);
  EXPECT_EQ(whole.profile.vectorwise[0].steps_PC, made.vectorwise[0].steps_PC);
  EXPECT_EQ(whole.profile.vectorwise[0].planes_P[3].anchors_C,
            made.vectorwise[0].planes_P[3].anchors_C);
  EXPECT_EQ(whole.profile.transforms[1].groups[2].tables_R, made.transforms[1].groups[2].tables_R);
  for (size_t size = 0; size < whole.bytes.size(); size += 13) {
    EXPECT_THROW(read_profile(std::span(whole.bytes).first(size)), InputError);
  }
  for (size_t i = 0; i < whole.bytes.size(); i += 7) {
    Bytes changed = whole.bytes;
    changed[i] ^= std::byte{0xFF};
    EXPECT_THROW(read_profile(changed), InputError);
    try {
      read_profile(sealed(changed));
    } catch (const InputError&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace atl::kv
