// The hand-written Segment against protobuf's own.
#include "atoll/net/segment.h"

#include <gtest/gtest.h>

#include "atoll.pb.h"
#include "atoll/base/hash.h"

namespace atl::net {
namespace {

grpc::ByteBuffer buffer_of(const std::string& text) {
  const grpc::Slice slice(text);
  return {&slice, 1};
}

std::string text_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const auto& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of(std::string_view text) {
  const auto bytes = as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

const auto kFrame = std::make_shared<const SharedFrame>(
    SharedFrame{.head = bytes_of("head-"),
                .blob = std::make_shared<const Bytes>(bytes_of("no, a body, no")),
                .begin = 4,
                .num_bytes = 6,
                .tail = bytes_of("-tail")});

TEST(SegmentTest, ProtobufReadsWhatIsWritten) {
  EXPECT_EQ(kFrame->joined(), bytes_of("head-a body-tail"));
  for (size_t begin = 0; begin <= kFrame->size(); ++begin) {
    for (size_t size = 0; begin + size <= kFrame->size(); ++size) {
      wire::Segment segment;
      const Connection::OutPiece piece{
          .frame = kFrame, .begin = begin, .size = size, .last = true, .checksum = 0x1234567890};
      ASSERT_TRUE(segment.ParseFromString(text_of(to_segment(piece))));
      EXPECT_EQ(segment.data(), std::string("head-a body-tail").substr(begin, size));
      EXPECT_TRUE(segment.last());
      EXPECT_EQ(segment.checksum(), 0x1234567890U);
      EXPECT_FALSE(segment.goodbye());
    }
  }
  wire::Segment goodbye;
  ASSERT_TRUE(goodbye.ParseFromString(text_of(to_segment({.goodbye = true}))));
  EXPECT_TRUE(goodbye.goodbye());
}

TEST(SegmentTest, WhatProtobufWritesIsRead) {
  wire::Segment segment;
  auto buffer = buffer_of(segment.SerializeAsString());
  const auto empty = to_piece(buffer);
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->data.empty() && !empty->last && !empty->goodbye);
  segment.set_data(std::string(100'000, 'x'));
  segment.set_last(true);
  segment.set_checksum(77);
  segment.set_goodbye(true);
  buffer = buffer_of(segment.SerializeAsString());
  const auto piece = to_piece(buffer);
  ASSERT_TRUE(piece);
  EXPECT_EQ(text_of(piece->data), segment.data());
  EXPECT_EQ(piece->checksum, 77U);
  EXPECT_TRUE(piece->last && piece->goodbye);
}

TEST(SegmentTest, UnknownFieldsAreSkippedAndNonsenseIsRefused) {
  auto later = buffer_of(
      "\x50\x05\x59"
      "12345678"
      "\x62\x02hi"
      "\x6d"
      "1234"
      "\x10\x01");
  ASSERT_TRUE(to_piece(later));
  EXPECT_TRUE(to_piece(later)->last);
  const std::string too_long = std::string("\x0a") + "\xff\xff\xff\x7f";
  for (const std::string& text :
       {std::string("\x0a\x05"
                    "abc"),
        too_long, std::string("\x0b"),
        std::string("\x19"
                    "123"),
        std::string("\x10"), std::string("\x62\x7fx"), std::string(20, '\xff')}) {
    auto wrong = buffer_of(text);
    EXPECT_FALSE(to_piece(wrong)) << text;
  }
}

}  // namespace
}  // namespace atl::net
