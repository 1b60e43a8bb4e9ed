#include "atoll/codec/positions.h"

#include <gmock/gmock.h>

#include <numeric>

#include "atoll/testing/test_values.h"

namespace atl::codec {
namespace {

using testing::HasSubstr;

Bytes written(std::span<const uint32_t> positions, size_t num_positions) {
  Bytes bytes(max_position_bytes(num_positions, positions.size()));
  bytes.resize(write_positions(positions, num_positions, bytes));
  return bytes;
}

/// round(share * count) of `count` positions, all choices equally likely (Knuth 3.4.2, S).
std::vector<uint32_t> draw_positions(size_t count, double share, uint64_t seed) {
  std::vector<uint32_t> positions;
  double missing = std::round(share * static_cast<double>(count));
  for (uint32_t i = 0; i < count; ++i) {
    if (random_uniform(seed, 0, i) * static_cast<double>(count - i) >= missing) continue;
    positions.push_back(i);
    --missing;
  }
  return positions;
}

TEST(PositionsTest, GoldenBytes) {
  // n / k = 5, so m = 3, b = 1, u = 1. Gap 4 = 3 + 1: 0 1 for 3, then 1 + u = 2 as 1 0.
  // Gap 0: 1, then 0. Bits from the lowest on: 0 1 1 0 1 0.
  EXPECT_EQ(written(std::vector<uint32_t>{4, 5}, 10), Bytes{std::byte{0b010110}});
  EXPECT_EQ(written({}, 10), Bytes{});
  // n = k: m = 1, each gap of 0 is a one.
  EXPECT_EQ(written(std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}, 9),
            (Bytes{std::byte{0xff}, std::byte{1}}));
}

TEST(PositionsTest, ComeBackForAllSharesAndPlaces) {
  for (const size_t count : {1, 2, 9, 64, 1000, 100'000}) {
    for (const double share : {0.0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0}) {
      std::vector<std::vector<uint32_t>> cases = {draw_positions(count, share, 1)};
      std::vector<uint32_t> run(cases[0].size());
      std::iota(run.begin(), run.end(), 0U);
      cases.push_back(run);  // All at the start: no gaps. All at the end: one long gap.
      for (uint32_t& position : run) position += static_cast<uint32_t>(count - run.size());
      cases.push_back(run);
      for (const auto& positions : cases) {
        Bytes bytes = written(positions, count);
        EXPECT_LE(bytes.size(), max_position_bytes(count, positions.size()));
        bytes.resize(bytes.size() + 3, std::byte{0xff});  // The next part.
        std::vector<uint32_t> read(positions.size());
        EXPECT_EQ(read_positions(bytes, count, read), bytes.size() - 3);
        ASSERT_EQ(read, positions) << count << ' ' << share;
      }
    }
  }
}

TEST(PositionsTest, GapsOfTheLargestSizesComeBack) {
  constexpr size_t kCount = 0xffff'ffff;
  for (const std::vector<uint32_t>& positions : std::vector<std::vector<uint32_t>>{
           {0xffff'fffe}, {0}, {0x8000'0000}, {0, 0xffff'fffe}, {0xffff'fffd, 0xffff'fffe}}) {
    const Bytes bytes = written(positions, kCount);
    std::vector<uint32_t> read(positions.size());
    EXPECT_EQ(read_positions(bytes, kCount, read), bytes.size());
    EXPECT_EQ(read, positions);
  }
}

TEST(PositionsTest, TakeNearlyTheEntropyAndWhatIsStated) {
  constexpr size_t kCount = 1 << 20;
  for (const double share : {0.001, 0.01, 0.015625, 0.05, 0.1, 0.2, 0.3, 0.4}) {
    const auto positions = draw_positions(kCount, share, 2);
    const double bits = 8.0 * static_cast<double>(written(positions, kCount).size()) / kCount;
    const double entropy = -share * std::log2(share) - (1 - share) * std::log2(1 - share);
    EXPECT_LE(bits, 1.03 * entropy) << share;
    EXPECT_NEAR(bits, position_bits(share), 0.01 * entropy) << share;
  }
  EXPECT_EQ(position_bits(1), 1);
}

TEST(PositionsTest, OnlyZerosFillTheLastByte) {
  std::vector<uint32_t> read(2);
  for (const int bit : {6, 7}) {  // GoldenBytes says what the others are.
    const Bytes bad{static_cast<std::byte>(0b010110 | 1 << bit)};
    EXPECT_THAT(message_of([&] { read_positions(bad, 10, read); }), HasSubstr("is not zero"));
  }
  for (size_t num_kept = 1; num_kept < 200; ++num_kept) {
    const auto positions = draw_positions(1000, 1e-3 * static_cast<double>(num_kept), num_kept);
    const Bytes good = written(positions, 1000);
    read.resize(num_kept);
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bad = good;
      bad.back() ^= static_cast<std::byte>(1 << bit);
      const std::string message = message_of([&] { read_positions(bad, 1000, read); });
      ASSERT_TRUE(!message.empty() || read != positions) << num_kept << ' ' << bit;
    }
  }
}

/// Short gaps are read and written two at a time; among them stand long ones, at odd and even
/// places, and one kind of table follows another.
TEST(PositionsTest, LongGapsAmongManyShortOnesComeBack) {
  constexpr size_t kCount = 60'000;
  for (const double share : {0.05, 0.1, 0.2, 0.3, 0.6, 0.2}) {
    for (const uint32_t hole : {30U, 63U, 64U, 65U, 300U, 20'000U}) {
      std::vector<uint32_t> positions = draw_positions(kCount, share, hole);
      std::erase_if(positions, [&](uint32_t position) {
        const bool in_first = position > 1001 && position < 1001 + hole;
        return in_first || (position > 30'000 && position < 30'001 + hole);
      });
      const Bytes bytes = written(positions, kCount);
      std::vector<uint32_t> read(positions.size());
      EXPECT_EQ(read_positions(bytes, kCount, read), bytes.size());
      EXPECT_EQ(read, positions);
      for (const size_t missing : {size_t{1}, size_t{5}, size_t{9}, bytes.size() / 2}) {
        const auto some = std::span(bytes).first(bytes.size() - missing);
        EXPECT_THAT(message_of([&] { read_positions(some, kCount, read); }),
                    HasSubstr("among 60000 end after"));
      }
    }
  }
}

TEST(PositionsTest, WhatEndsTooEarlyOrLiesTooFarIsRefused) {
  const Bytes good = written(draw_positions(1000, 0.1, 3), 1000);
  std::vector<uint32_t> read(draw_positions(1000, 0.1, 3).size());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(message_of([&] { read_positions(std::span(good).first(size), 1000, read); }),
                HasSubstr("among 1000 end after"));
  }
  EXPECT_THAT(message_of([&] { read_positions(Bytes(1000), 1000, read); }), HasSubstr("after 0"));
  Bytes ones(1000, std::byte{0xff});  // All gaps are small, until the last is too far.
  ones[124] = std::byte{0x7f};        // 999 bits.
  read.resize(999);
  EXPECT_NO_THROW(read_positions(ones, 1000, read));
  // In each byte one is skipped and seven are kept: 125 bytes fill the thousand.
  EXPECT_THAT(message_of([&] { read_positions(Bytes(1000, std::byte{0xfe}), 1000, read); }),
              HasSubstr("end after 875"));
}

}  // namespace
}  // namespace atl::codec
