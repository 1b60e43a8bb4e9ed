// The choice on links whose right answer follows from arithmetic.
#include "atoll/method/auto_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::method {
namespace {

/// A million values in each of 4 rounds of a period of 20 steps of one second.
constexpr Load kLoad{.largest_round = 1'000'000, .num_rounds = 4, .num_members = 2};
const SyncOptions kStreaming{.method = "streaming_diloco", .sync_every = 20, .codec = "auto"};

Choice at_rate(const SyncOptions& options, double bits_per_second, double round_seconds = 0) {
  const std::vector<Measured> both(
      2, {.step_seconds = 1, .round_seconds = round_seconds, .bits_per_second = bits_per_second});
  return choose(options, kLoad, both);
}

TEST(AutoChoiceTest, AFastLinkNeedsNoCompression) {
  const Choice choice = at_rate(kStreaming, 100e6);  // 32 Mbit take a third of a second.
  EXPECT_EQ(choice.codec, "fp32");
  EXPECT_EQ(choice.delay, 1);
  EXPECT_EQ(choice.stall_share, 0);
}

TEST(AutoChoiceTest, DelayComesBeforeCompressionAndCompressionBeforeMuchDelay) {
  EXPECT_EQ(at_rate(kStreaming, 20e6).codec, "fp32");  // 1.6 s: two or three steps.
  EXPECT_EQ(at_rate(kStreaming, 20e6).delay, 2);
  EXPECT_EQ(at_rate(kStreaming, 5e6).codec, "bf16");  // FP32: 6.4 s, over five steps.
  EXPECT_EQ(at_rate(kStreaming, 5e6).delay, 4);       // BF16: 3.2 s in 4 * 0.8.
  EXPECT_EQ(at_rate(kStreaming, 3e6).codec, "int8");  // BF16: 5.3 s; INT8: 2.7 s.
  EXPECT_EQ(at_rate(kStreaming, 2e6).codec, "int4");  // INT8: 4.03 s, over five steps.
  EXPECT_EQ(at_rate(kStreaming, 2e6).delay, 3);       // INT4: 2.06 s in 3 * 0.8.
}

TEST(AutoChoiceTest, TheSlowestMemberCounts) {
  const std::vector<Measured> members = {
      {.step_seconds = 1, .round_seconds = 0, .bits_per_second = 1e9},
      {.step_seconds = 4, .round_seconds = 0, .bits_per_second = 5e6}};
  EXPECT_EQ(choose(kStreaming, kLoad, members).codec, "bf16");
}

TEST(AutoChoiceTest, WhenNothingHidesItIsTheFewestBitsAndSaysHowLongItWaits) {
  const Choice choice = at_rate(kStreaming, 1e5);
  EXPECT_EQ(choice.codec, "e3m0");
  EXPECT_EQ(choice.delay, 4);
  EXPECT_GT(choice.stall_share, 0.8);
  EXPECT_LT(choice.stall_share, 1);
}

TEST(AutoChoiceTest, MethodsThatWaitMayWaitForATwentieth) {
  SyncOptions diloco{.method = "diloco", .sync_every = 20, .codec = "auto"};
  const Load all{.largest_round = 1'000'000, .num_rounds = 1, .num_members = 2};
  const auto chosen = [&](double rate) {
    const std::vector<Measured> both(2, {.step_seconds = 1, .bits_per_second = rate});
    return choose(diloco, all, both);
  };
  EXPECT_EQ(chosen(40e6).codec, "fp32");  // 0.8 s of 20.8.
  EXPECT_EQ(chosen(20e6).codec, "bf16");  // FP32 1.6 s; BF16 0.8 s.
  EXPECT_EQ(chosen(20e6).delay, 0);
  diloco.method = "eager_diloco";  // Its exchange has all of the next period.
  EXPECT_EQ(chosen(2e6).codec, "fp32");
}

TEST(AutoChoiceTest, ASparseCodecOnlyIfItIsTheMethodsOwn) {
  SyncOptions options{.method = "cocktail_sgd", .codec = "auto"};
  EXPECT_EQ(at_rate(options, 1e5).codec, "cocktail");
  EXPECT_EQ(at_rate(options, 1e5).delay, 1);
  options.method = "data_parallel";
  EXPECT_EQ(at_rate(options, 1e5).codec, "e3m0");
}

TEST(AutoChoiceTest, AloneNothingIsCompressed) {
  const std::vector<Measured> one = {{.step_seconds = 1, .round_seconds = 5, .bits_per_second = 1}};
  EXPECT_EQ(choose(kStreaming, {.largest_round = 1000, .num_members = 1}, one).codec, "fp32");
}

}  // namespace
}  // namespace atl::method
