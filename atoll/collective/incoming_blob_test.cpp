#include "atoll/collective/incoming_blob.h"

#include <gtest/gtest.h>

namespace atl::collective {
namespace {

/// Ten bytes, 0 to 9, come from "b".
class IncomingBlobTest : public testing::Test {
 protected:
  Result<void> take(uint64_t offset, size_t size, uint64_t total = 10) {
    Bytes data(size);
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(offset + i);
    const std::string sender = "b";
    return blob_.take({.segment = 3, .offset = offset, .total = total}, data,
                      {.sender = sender, .num_values = 4, .most = 10}, arena_);
  }
  std::string refusal(uint64_t offset, size_t size, uint64_t total = 10) {
    const auto taken = take(offset, size, total);
    return taken ? "" : taken.error().message;
  }

  PagePool pool_{0};
  BlobArena arena_{1, 64, pool_};
  IncomingBlob blob_;
};

TEST_F(IncomingBlobTest, IsWholeWhenAllOfItCame) {
  EXPECT_TRUE(blob_.begin({1, 0}));
  EXPECT_TRUE(take(0, 4));
  EXPECT_FALSE(blob_.done());
  EXPECT_TRUE(take(4, 6));
  ASSERT_TRUE(blob_.done());
  ASSERT_EQ(blob_.bytes().size(), 10U);
  EXPECT_EQ(blob_.bytes()[9], std::byte{9});
  const SharedBytes shared = blob_.shared();
  blob_.let_go();
  EXPECT_TRUE(blob_.done());
  EXPECT_EQ(shared.bytes[9], std::byte{9});
}

TEST_F(IncomingBlobTest, OnlyWhatIsNextIsTaken) {
  EXPECT_EQ(refusal(0, 4, 0), "island 'b' sent a part of 0 bytes, where 4 values have 1 to 10");
  EXPECT_EQ(refusal(0, 4, 11), "island 'b' sent a part of 11 bytes, where 4 values have 1 to 10");
  const std::string next = ", where byte 0 of 10 is next";
  EXPECT_EQ(refusal(4, 4), "island 'b' sent 4 bytes at 4 of 10 of segment 3" + next);
  EXPECT_EQ(refusal(0, 0), "island 'b' sent 0 bytes at 0 of 10 of segment 3" + next);
  EXPECT_EQ(refusal(0, 11), "island 'b' sent 11 bytes at 0 of 10 of segment 3" + next);
  EXPECT_EQ(blob_.received(), 0U);
  EXPECT_TRUE(take(0, 4));
  EXPECT_EQ(refusal(0, 4), "island 'b' sent bytes 0 to 4 of segment 3 twice");
  EXPECT_EQ(refusal(4, 1, 9),
            "island 'b' sent 1 bytes at 4 of 9 of segment 3, where byte 4 of 10 is next");
  EXPECT_TRUE(take(4, 6));
  EXPECT_EQ(refusal(9, 1), "island 'b' sent bytes 9 to 10 of segment 3 twice");
}

TEST_F(IncomingBlobTest, ANewerAttemptBeginsAnewAndAnOlderOneIsNotHeard) {
  EXPECT_TRUE(blob_.begin({1, 5}));
  EXPECT_TRUE(take(0, 4));
  EXPECT_TRUE(blob_.begin({1, 5})) << "as for its next chunk";
  EXPECT_FALSE(blob_.begin({1, 4}));
  EXPECT_EQ(blob_.received(), 4U);
  EXPECT_TRUE(blob_.begin({2, 0})) << "the term counts first";
  EXPECT_EQ(blob_.received(), 0U);
  EXPECT_EQ(refusal(0, 3, 9),
            "island 'b' sent 3 bytes at 0 of 9 of segment 3, where byte 0 of 10 is next");
  EXPECT_TRUE(take(0, 10));
}

TEST_F(IncomingBlobTest, WhatIsWholeIsNotTakenAgain) {
  EXPECT_TRUE(blob_.begin({1, 0}));
  EXPECT_TRUE(take(0, 10));
  EXPECT_FALSE(blob_.begin({1, 1}));
}

}  // namespace
}  // namespace atl::collective
