#include "atoll/collective/segment_mean.h"

#include <gtest/gtest.h>

#include <bit>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"

namespace atl::collective {
namespace {

using Values = std::vector<float>;

class SegmentMeanTest : public testing::Test {
 protected:
  explicit SegmentMeanTest(const char* codec = "fp32") : codec_(codec::make_codec(codec)) {}

  MeanRule rule(const std::vector<int64_t>& weights) const {
    return {.codec = codec_.get(), .sequence = 5, .coefficients = coefficients(weights)};
  }
  Bytes encoded(const Values& values) const {
    Bytes out;
    codec_->encode(values, out, 5);
    return out;
  }
  /// As all decode it.
  Values add(SegmentMean& mean, const Values& values) const {
    Values decoded(values.size());
    mean.add(encoded(values), decoded);
    return decoded;
  }

  std::unique_ptr<codec::Codec> codec_;
};

/// Beside small integers in bf16: half a unit of what it keeps of 257 is lost.
class LossyMeanTest : public SegmentMeanTest {
 protected:
  LossyMeanTest() : SegmentMeanTest("bf16") {}
};

TEST_F(SegmentMeanTest, WantsContributionsInTheOrderOfRanksWithoutThoseLeftOut) {
  const MeanRule three = rule({0, 1, 0, 3, 0});
  Values values(2, 99.0F);
  SegmentMean mean(three, values);
  EXPECT_EQ(mean.wanted(), 1);
  add(mean, {4, 8});
  EXPECT_EQ(mean.wanted(), 3);
  add(mean, {8, -8});
  EXPECT_EQ(mean.wanted(), std::nullopt);
  EXPECT_EQ(values, (Values{7, -4})) << "and nothing of what was there before";
}

TEST_F(SegmentMeanTest, WithoutAnyWeightNothingIsWanted) {
  const MeanRule nobody = rule({0, 0});
  Values values(2);
  EXPECT_EQ(SegmentMean(nobody, values).wanted(), std::nullopt);
  EXPECT_EQ(SegmentMean().wanted(), std::nullopt);
}

/// (1e8 + 1) - 1e8 is 0 in FP32 and (1e8 - 1e8) + 1 is 1: who sums in another order has other bits.
TEST_F(SegmentMeanTest, SumsInFp32InTheOrderOfRanks) {
  const MeanRule equal = rule({1, 1, 1, 1});
  Values values(2);
  SegmentMean mean(equal, values);
  const std::vector<Values> all = {{4e8F, 4e8F}, {4, -4e8F}, {-4e8F, 4}, {0, 0}};
  for (const Values& contribution : all) add(mean, contribution);
  EXPECT_EQ(values, (Values{0, 1}));
}

TEST_F(SegmentMeanTest, SumOfNegativeZerosIsAsIfAddedToZero) {
  const MeanRule alone = rule({1});
  Values values(1, -1.0F);
  SegmentMean mean(alone, values);
  add(mean, {-0.0F});
  EXPECT_EQ(std::bit_cast<uint32_t>(values[0]), 0U);
}

TEST_F(LossyMeanTest, WhoMadeItHoldsWhatTheOthersDecode) {
  const MeanRule equal = rule({1, 1});
  Values values(2);
  SegmentMean mean(equal, values);
  EXPECT_EQ(add(mean, {256, 2}), (Values{256, 2}));
  add(mean, {258, 4});
  EXPECT_EQ(values, (Values{257, 3}));
  Bytes travels;
  mean.encode({}, travels);
  EXPECT_EQ(travels, encoded({257, 3}));
  Values lost(2, 99.0F);
  mean.hold(travels, lost);
  EXPECT_EQ(values, (Values{256, 3}));
  EXPECT_EQ(lost, (Values{1, 0}));

  Values others(2, 99.0F);
  SegmentMean(equal, others).hold(travels);
  EXPECT_EQ(others, values);
}

TEST_F(LossyMeanTest, WhatWasLostBeforeTravelsToo) {
  const MeanRule alone = rule({1});
  Values values(1);
  SegmentMean mean(alone, values);
  add(mean, {256});
  Bytes travels;
  mean.encode(Values{2}, travels);
  EXPECT_EQ(travels, encoded({258}));
}

TEST_F(SegmentMeanTest, WhatIsNoEncodingIsNotAdded) {
  const MeanRule alone = rule({1});
  Values values(2);
  Values decoded(2);
  SegmentMean mean(alone, values);
  EXPECT_THROW(mean.add(Bytes(3), decoded), InputError);
  EXPECT_THROW(mean.add(encoded({1, 2, 3}), decoded), InputError);
  EXPECT_EQ(mean.wanted(), 0);
  EXPECT_THROW(mean.hold(Bytes(3)), InputError);
}

TEST(CoefficientsTest, AreTheSharesOfTheTokens) {
  EXPECT_EQ(coefficients(std::vector<int64_t>{1, 3}), (Values{0.25F, 0.75F}));
  EXPECT_EQ(coefficients(std::vector<int64_t>{7}), Values{1.0F});
  EXPECT_EQ(coefficients(std::vector<int64_t>{0, 7}), (Values{0.0F, 1.0F}));
  EXPECT_EQ(coefficients(std::vector<int64_t>{0, 0}), (Values{0.0F, 0.0F}));
}

}  // namespace
}  // namespace atl::collective
