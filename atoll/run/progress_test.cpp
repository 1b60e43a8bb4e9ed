// What a person or a script reads of a run, and the rates that they write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/run/launcher.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/live_view.h"
#include "atoll/run/progress.h"

namespace atl::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(LinkRateTest, ReadsUnits) {
  EXPECT_EQ(parse_link_rate("20mbit"), 20e6);
  EXPECT_EQ(parse_link_rate("1.5gbit"), 1.5e9);
  EXPECT_EQ(parse_link_rate("300kbit"), 300e3);
  EXPECT_EQ(parse_link_rate("7bit"), 7);
}

TEST(LinkRateTest, RefusesWhatIsNoRate) {
  for (const char* text : {"", "mbit", "20", "20 mbit", "0mbit", "-1mbit", "nanmbit", "infmbit",
                           "1e999mbit", "20mbits", "fast"}) {
    EXPECT_THROW(parse_link_rate(text), UsageError) << text;
  }
}

TEST(ProgressTest, JsonKeepsEverything) {
  const Progress progress{.step = 7,
                          .steps = 9,
                          .tokens = 100,
                          .loss = 1.5,
                          .val_loss = 2.5,
                          .lr = 1e-3,
                          .grad_norm = 0.5,
                          .tokens_per_s = 10,
                          .seconds_left = 3,
                          .stall_share = 0.25,
                          .abstained_rounds = 3,
                          .began_at = 2,
                          .seconds = {.computing = 5,
                                      .handling = 0.5,
                                      .waiting = 1.5,
                                      .validation = 0.75,
                                      .checkpoints = 0.125}};
  EXPECT_EQ(progress_from_json(to_json(progress)).seconds, progress.seconds);
  EXPECT_EQ(progress_from_json(to_json(progress)).began_at, 2);
  EXPECT_THAT(progress_line(progress), HasSubstr("3 rounds abstained"));
  EXPECT_EQ(to_json(progress_from_json(to_json(progress))), to_json(progress));
  // A loss that is no number is null, and comes back as NaN.
  const Progress lost{.loss = std::nan(""), .val_loss = std::nan(""), .grad_norm = HUGE_VAL};
  EXPECT_THAT(to_json(lost), HasSubstr("\"loss\":null"));
  EXPECT_EQ(to_json(progress_from_json(to_json(lost))), to_json(lost));
  const Summary diverged{.train_loss = std::nan(""), .val_loss = std::nan("")};
  EXPECT_EQ(to_json(summary_from_json(to_json(diverged))), to_json(diverged));
  const Summary summary{.run = "runs/\"a\"",
                        .steps = 3,
                        .val_loss = 2.25,
                        .digest = "ab",
                        .bytes_sent = int64_t{1} << 40,
                        .stall_share = 0.5,
                        .blocked_share = 0.25,
                        .abstained_rounds = 2,
                        .method = "streaming_diloco",
                        .codec = "e3m0",
                        .fragment_sync_delay = 1,
                        .stopped = true};
  EXPECT_EQ(to_json(summary_from_json(to_json(summary))), to_json(summary));
}

TEST(ProgressTest, TheTableSaysWhatWasChosenAndWhoAbstained) {
  RunConfig config;
  config.sync.codec = "auto";
  Summary island{.run = "r/island-0",
                 .steps = 9,
                 .method = "cocktail_sgd",
                 .codec = "cocktail",
                 .fragment_sync_delay = 1,
                 .steps_now = 9};
  Summary other = island;
  other.run = "r/island-1";
  other.abstained_rounds = 4;
  EXPECT_EQ(combine({island, other}, "r").abstained_rounds, 4);
  EXPECT_THAT(result_table(config, {island, other}),
              AllOf(HasSubstr("cocktail_sgd, codec cocktail, fragment_sync_delay 1 (sync.codec = "
                              "auto"),
                    HasSubstr("island-1 abstained from 4 rounds"), HasSubstr("r/island-1/log.txt"),
                    Not(HasSubstr("island-0 abstained"))));
}

/// stderr is no terminal here.
TEST(LiveViewTest, ARowThatIsQuietSaysSo) {
  ManualClock clock;
  clock.advance(std::chrono::hours(1));
  LiveView view({"island-0"}, clock);
  const auto printed_after = [&](std::chrono::seconds pause) {
    testing::internal::CaptureStderr();
    clock.advance(pause);
    view.remind(0);
    return testing::internal::GetCapturedStderr();
  };
  testing::internal::CaptureStderr();
  view.update(0, "step 1/9");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "island-0  step 1/9\n");
  EXPECT_EQ(printed_after(std::chrono::seconds(14)), "");
  EXPECT_EQ(printed_after(std::chrono::seconds(50)), "island-0  step 1/9  no news for 01:04\n");
  EXPECT_EQ(printed_after(std::chrono::seconds(50)), "");
  EXPECT_EQ(printed_after(std::chrono::seconds(10)), "island-0  step 1/9  no news for 02:04\n");
}

}  // namespace
}  // namespace atl::run
