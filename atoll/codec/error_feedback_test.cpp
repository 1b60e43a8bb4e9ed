#include "atoll/codec/error_feedback.h"

#include <gmock/gmock.h>

#include <limits>

#include "atoll/testing/test_values.h"

namespace atl::codec {
namespace {

using testing::ElementsAre;

TEST(ErrorFeedbackTest, WhatWasLeftOutIsSentLater) {
  const auto codec = make_codec("topk(0.34)+fp32");  // One of three.
  ErrorFeedback feedback(*codec, 3);
  Bytes bytes = {std::byte{7}};  // Encodings are appended.
  feedback.encode(std::vector<float>{1, -4, 2}, bytes);
  EXPECT_THAT(decoded(*codec, std::span(bytes).subspan(1), 3), ElementsAre(0, -4, 0));
  EXPECT_THAT(feedback.sent(), ElementsAre(0, -4, 0));
  EXPECT_THAT(feedback.residual(), ElementsAre(0, 0, 0)) << "not before it is committed";
  feedback.commit();
  EXPECT_THAT(feedback.residual(), ElementsAre(1, 0, 2));
  feedback.encode(std::vector<float>{4, -4, 2}, bytes);  // 5, -4, 4.
  EXPECT_THAT(feedback.sent(), ElementsAre(5, 0, 0));
  feedback.commit();
  EXPECT_THAT(feedback.residual(), ElementsAre(0, -4, 4));
}

TEST(ErrorFeedbackTest, AfterDiscardAndFailureTheOldResidualCounts) {
  const auto codec = make_codec("topk(0.5)+fp32");
  ErrorFeedback feedback(*codec, 2);
  Bytes bytes;
  feedback.encode(std::vector<float>{1, 8}, bytes);
  feedback.commit();  // 1, 0.
  feedback.encode(std::vector<float>{1, 8}, bytes);
  feedback.discard();
  EXPECT_THAT(feedback.residual(), ElementsAre(1, 0));
  const size_t size = bytes.size();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(feedback.encode(std::vector<float>{1, nan}, bytes), InputError);
  EXPECT_EQ(bytes.size(), size);
  EXPECT_DEATH(feedback.commit(), "nothing was encoded");
  EXPECT_THAT(feedback.residual(), ElementsAre(1, 0));
  feedback.encode(std::vector<float>{1, 8}, bytes);
  feedback.encode(std::vector<float>{7, 0}, bytes);  // Sent again in other words: 8, 0.
  feedback.commit();
  EXPECT_THAT(feedback.sent(), ElementsAre(8, 0));
  EXPECT_THAT(feedback.residual(), ElementsAre(0, 0));
}

TEST(ErrorFeedbackTest, ResidualDecays) {
  const auto codec = make_codec("topk(0.5)+fp32");
  ErrorFeedback feedback(*codec, 2, 0.75F);
  Bytes bytes;
  feedback.residual()[0] = 4;  // From a checkpoint.
  feedback.encode(std::vector<float>{1, 8}, bytes);
  feedback.commit();
  EXPECT_THAT(feedback.residual(), ElementsAre(4, 0));  // 1 + 0.75 * 4.
}

/// Whole numbers below 2^24 in all sums: no rounding hides a loss.
TEST(ErrorFeedbackTest, SumsOfWhatWasSentAndTheResidualAreExact) {
  for (const char* name : {"fp16", "topk(0.1)+fp32", "chunk_topk(3/64)+fp32", "rolling(0.1)+fp32",
                           "random(0.2)+topk(0.5)+fp32", "random(0.2)+bf16"}) {
    const auto codec = make_codec(name);
    ErrorFeedback feedback(*codec, 1000);
    std::vector<double> missing(1000);
    for (uint32_t turn = 0; turn < 30; ++turn) {
      std::vector<float> values(1000);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(random_bits(5, turn, i) % 2001) - 1000;
        missing[i] += values[i];
      }
      Bytes bytes;
      feedback.encode(values, bytes, turn);
      feedback.commit();
      for (size_t i = 0; i < values.size(); ++i) missing[i] -= feedback.sent()[i];
      const std::vector<double> residual(feedback.residual().begin(), feedback.residual().end());
      ASSERT_EQ(missing, residual) << name << ", turn " << turn;
    }
  }
}

/// The theory's promise: with e staying bounded, the mean of what is sent goes to the values as
/// 1 / turns, for every codec, however few values it keeps at a time.
TEST(ErrorFeedbackTest, MeansOfWhatWasSentApproachTheValues) {
  const std::vector<float> values = draw_values(0, 10'000);
  for (const char* name : {"cocktail", "sparse_loco", "topk(0.05)+sign3", "random(0.1)+int8",
                           "e3m0", "stat2", "rolling(0.05)+e3m0"}) {
    const auto codec = make_codec(name);
    ErrorFeedback feedback(*codec, values.size());
    std::vector<double> sum(values.size());
    const auto error_after = [&](uint32_t turns) {  // Relative, squared.
      double error = 0;
      double size = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double difference = sum[i] / turns - values[i];
        error += difference * difference;
        size += double{values[i]} * values[i];
      }
      return error / size;
    };
    double early = 0;
    for (uint32_t turn = 0; turn < 1000; ++turn) {
      Bytes bytes;
      feedback.encode(values, bytes, turn);
      feedback.commit();
      for (size_t i = 0; i < values.size(); ++i) sum[i] += feedback.sent()[i];
      if (turn == 249) early = error_after(250);
    }
    EXPECT_LT(error_after(1000), std::max(early / 6, 1e-6)) << name;  // 16 as turns grow.
    EXPECT_LT(error_after(1000), 0.01) << name;
  }
}

}  // namespace
}  // namespace atl::codec
