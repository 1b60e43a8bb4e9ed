#include "atoll/net/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace atl::net {
namespace {

std::array<std::byte, kHeaderBytes> bytes_of(uint32_t size, uint32_t kind, uint64_t checksum) {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + 4, &kind, sizeof kind);
  std::memcpy(bytes.data() + 8, &checksum, sizeof checksum);
  return bytes;
}

TEST(SegmentTest, HeadersHaveTheirPlacesOnTheWire) {
  const SegmentHeader header{.kind = SegmentKind::kLastPiece, .size = 0x01020304, .checksum = 5};
  EXPECT_EQ(encode(header), bytes_of(0x01020304, 4, 5));
  const auto read = decode_header(bytes_of(1000, 4, 77));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, SegmentKind::kLastPiece);
  EXPECT_EQ(read->size, 1000U);
  EXPECT_EQ(read->checksum, 77U);
}

TEST(SegmentTest, SizesAreBoundedByKindBeforeThereIsABody) {
  EXPECT_TRUE(decode_header(bytes_of(kMaxPieceBytes, 3, 0)));
  for (const auto& [size, kind] : {std::pair<size_t, uint32_t>{kMaxPieceBytes + 1, 3},
                                   {kMaxPieceBytes + 1, 4},
                                   {65, 1},
                                   {kMaxReasonBytes + 1, 2},
                                   {1, 5},
                                   {1, 6},
                                   {1, 7},
                                   {0, 0},
                                   {0, 8},
                                   {0, 0x103}}) {
    EXPECT_FALSE(decode_header(bytes_of(static_cast<uint32_t>(size), kind, 0))) << size << kind;
  }
}

TEST(SegmentTest, HellosAreReadBackAndOtherVersionsAreNamed) {
  for (const Plane plane : {Plane::kControl, Plane::kBulk, Plane::kLane, Plane::kJoin}) {
    const Bytes bytes = encode(Hello{.plane = plane});
    const auto hello = decode_hello(std::span(bytes).subspan(kHeaderBytes));
    ASSERT_TRUE(hello);
    EXPECT_EQ(hello->plane, plane);
    EXPECT_EQ(version_mismatch(*hello), "");
  }
  Bytes later = encode(Hello{.version = 999});
  later.resize(later.size() + 20);  // What it says more is for its own kind.
  const auto hello = decode_hello(std::span(later).subspan(kHeaderBytes));
  ASSERT_TRUE(hello);
  EXPECT_THAT(version_mismatch(*hello), testing::HasSubstr("it speaks Atoll protocol 999"));
  Bytes wrong = encode(Hello{});
  wrong.back() = std::byte{9};
  EXPECT_FALSE(decode_hello(std::span(wrong).subspan(kHeaderBytes)));
  EXPECT_FALSE(decode_hello(std::span(wrong).subspan(kHeaderBytes, 4)));
  EXPECT_FALSE(decode_hello({}));
}

}  // namespace
}  // namespace atl::net
