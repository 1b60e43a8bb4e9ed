#include "atoll/collective/retrieval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::collective {
namespace {

using swarm::Fetch;
using swarm::Part;
using swarm::PartKind;
using testing::HasSubstr;

constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kSize = 3 * kPiece + 100;

/// A chunk of what was asked for, each byte told by its place.
Part chunk(const Fetch& fetch, uint64_t offset, size_t size, uint64_t total) {
  Part part{
      .header = {.round = 7}, .kind = fetch.kind, .segment = 2, .offset = offset, .total = total};
  for (size_t i = 0; i < size; ++i) {
    part.data.push_back(static_cast<std::byte>((offset + i) * 7 % 251));
  }
  return part;
}

Result<void> receive(Retrieval& retrieval, int32_t number, const Part& part) {
  return retrieval.receive(number, part, part.data, Time{});
}

void answer(Retrieval& retrieval, int32_t number, const Fetch& fetch) {
  constexpr size_t kChunk = 1'000'000;
  for (uint64_t begin = fetch.begin; begin < fetch.end; begin += kChunk) {
    const size_t size = std::min<size_t>(kChunk, fetch.end - begin);
    const auto taken = receive(retrieval, number, chunk(fetch, begin, size, kSize));
    ASSERT_TRUE(taken.has_value()) << taken.error().message;
  }
}

std::string complaint(Retrieval& retrieval, int32_t number, const Part& part) {
  const auto taken = receive(retrieval, number, part);
  return taken ? "" : taken.error().message;
}

TEST(RetrievalTest, APieceThatBrokeOffBeginsAnewElsewhere) {
  auto retrieval = Retrieval::of_state(2, 7, kSize);
  const Fetch first = retrieval.request_to(1, Time{}).value();
  ASSERT_TRUE(receive(retrieval, 1, chunk(first, first.begin, 1000, kSize)));
  retrieval.lost(1);
  const Fetch again = retrieval.request_to(2, Time{}).value();
  EXPECT_EQ(again.begin, first.begin);
  answer(retrieval, 2, again);
}

TEST(RetrievalTest, AStateComesInPiecesFromSeveral) {
  auto retrieval = Retrieval::of_state(2, 7, kSize);
  const Fetch a1 = retrieval.request_to(1, Time{}).value();
  const Fetch b1 = retrieval.request_to(2, Time{}).value();
  const Fetch a2 = retrieval.request_to(1, Time{}).value();
  EXPECT_FALSE(retrieval.request_to(1, Time{})) << "it has enough to do";
  const Fetch b2 = retrieval.request_to(2, Time{}).value();
  EXPECT_FALSE(retrieval.request_to(3, Time{})) << "all is asked for";
  EXPECT_EQ(b2.end, kSize);
  answer(retrieval, 2, b1);
  answer(retrieval, 1, a1);
  answer(retrieval, 1, a2);
  EXPECT_FALSE(retrieval.complete());
  answer(retrieval, 2, b2);
  ASSERT_TRUE(retrieval.complete());
  const Bytes bytes = retrieval.take();
  EXPECT_TRUE(std::ranges::equal(bytes, chunk(a1, 0, kSize, kSize).data));
}

TEST(RetrievalTest, WhatWasLostIsAskedOfAnother) {
  auto retrieval = Retrieval::of_state(2, 7, kPiece);
  const Fetch first = retrieval.request_to(1, Time{}).value();
  ASSERT_TRUE(receive(retrieval, 1, chunk(first, 0, 1000, kPiece)).has_value());
  retrieval.lost(1);
  const Fetch again = retrieval.request_to(2, Time{}).value();
  EXPECT_EQ(again.begin, 0U) << "from the beginning: another's bytes are checked together";
  EXPECT_EQ(again.end, kPiece);
}

TEST(RetrievalTest, WhoRefusedIsAskedAgainOnceForgiven) {
  auto retrieval = Retrieval::of_result(2, 7, 1000);
  ASSERT_TRUE(retrieval.request_to(1, Time{}));
  retrieval.refused(1, /*never=*/false);
  EXPECT_FALSE(retrieval.request_to(1, Time{}));
  EXPECT_TRUE(retrieval.has_refused(1));
  EXPECT_TRUE(retrieval.forgive());
  ASSERT_TRUE(retrieval.request_to(1, Time{}));
  retrieval.refused(1, /*never=*/true);
  EXPECT_FALSE(retrieval.forgive());
  EXPECT_FALSE(retrieval.request_to(1, Time{}));
  EXPECT_TRUE(retrieval.never_holds(1));
}

TEST(RetrievalTest, AResultHasTheSizeThatItsSenderSays) {
  auto retrieval = Retrieval::of_result(2, 7, 1000);
  const Fetch fetch = retrieval.request_to(1, Time{}).value();
  EXPECT_FALSE(retrieval.request_to(2, Time{})) << "one sends all of it";
  ASSERT_TRUE(receive(retrieval, 1, chunk(fetch, 0, 300, 500)).has_value());
  retrieval.lost(1);
  ASSERT_TRUE(retrieval.request_to(2, Time{}));
  ASSERT_TRUE(receive(retrieval, 2, chunk(fetch, 0, 400, 400)).has_value());
  EXPECT_TRUE(retrieval.complete());
  EXPECT_EQ(retrieval.take().size(), 400U);
}

TEST(RetrievalTest, WhatWasNotAskedForIsRefused) {
  auto retrieval = Retrieval::of_result(2, 7, 1000);
  EXPECT_THAT(complaint(retrieval, 1, chunk({.kind = PartKind::kResult}, 0, 10, 10)),
              HasSubstr("nobody asked for"));
  const Fetch fetch = retrieval.request_to(1, Time{}).value();
  EXPECT_THAT(complaint(retrieval, 2, chunk(fetch, 0, 10, 10)), HasSubstr("nobody asked for"));
  EXPECT_THAT(complaint(retrieval, 1, chunk(fetch, 0, 10, 2000)), HasSubstr("1000 is the most"));
  EXPECT_THAT(complaint(retrieval, 1, chunk(fetch, 0, 0, 0)), HasSubstr("0 bytes"));
  EXPECT_EQ(complaint(retrieval, 1, chunk(fetch, 0, 10, 50)), "");
  EXPECT_THAT(complaint(retrieval, 1, chunk(fetch, 0, 10, 50)), HasSubstr("10 to 50 are next"));
  EXPECT_THAT(complaint(retrieval, 1, chunk(fetch, 10, 10, 60)), HasSubstr("of 60"));
  EXPECT_THAT(complaint(retrieval, 1, chunk(fetch, 10, 41, 50)), HasSubstr("41 bytes at 10"));
  EXPECT_THAT(complaint(retrieval, 1, chunk(fetch, 10, 0, 50)), HasSubstr("0 bytes at 10"));
}

}  // namespace
}  // namespace atl::collective
