// What a person or a script reads of a run, and the rates that they write.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/live_view.h"
#include "atoll/run/progress.h"
#include "atoll/run/result_table.h"

namespace atl::run {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
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

Progress progress_from_json(const std::string& text) {
  Progress progress;
  read_json(nlohmann::json::parse(text), progress, Lacking::kRefused);
  return progress;
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
                          .bytes_sent = int64_t{1} << 40,
                          .bytes_received = 5,
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
                        .stopped = true,
                        .seconds = {.computing = 5, .checkpoints = 0.125},
                        .away_seconds = 1.5};
  EXPECT_EQ(to_json(summary_from_json(to_json(summary))), to_json(summary));
  EXPECT_EQ(summary_from_json(to_json(summary)).seconds, summary.seconds);
  EXPECT_EQ(summary_from_json(to_json(summary)).away_seconds, 1.5);
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

/// Waiting is told of the time that an island was there.
TEST(ProgressTest, TheTableTellsAwayFromWaiting) {
  const Summary stayed{.run = "r/island-0",
                       .val_loss_start = 7.5,
                       .bytes_sent = 2'000'000,
                       .num_parameters = 1'000'000,
                       .codec = "e3m0",
                       .steps_now = 120,
                       .seconds = {.computing = 98, .handling = 1, .waiting = 1}};
  EXPECT_THAT(result_table({}, {stayed, stayed}), Not(HasSubstr("away")));
  Summary returned = stayed;
  returned.run = "r/island-1";
  returned.val_loss_start = std::nan("");
  returned.steps_now = 80;
  returned.seconds = {.computing = 47, .handling = 1, .waiting = 2, .validation = 10};
  returned.away_seconds = 40;
  const Summary all = combine({returned, stayed}, "r");
  EXPECT_EQ(all.val_loss_start, 7.5);
  EXPECT_EQ(all.steps_now, 100) << "in whole batches";
  EXPECT_EQ(all.away_seconds, 40);
  EXPECT_DOUBLE_EQ(all.seconds.waiting_share(), 5.0 / 150);
  EXPECT_THAT(result_table({}, {stayed, returned}),
              AllOf(ContainsRegex("island-0 .* 2.0%        -\n"),
                    ContainsRegex("island-1  +- .* 6.0%   40.0 s\n"),
                    ContainsRegex("global .* 3.3%   40.0 s\n"),
                    // Two islands send two bytes for each of a million values in a hundred steps.
                    HasSubstr("would have needed 400.0 MB (100.0 times as much)")));
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

/// stderr as a terminal, while it lasts.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)), kept_(::dup(2)) {
    EXPECT_EQ(::grantpt(master_) | ::unlockpt(master_), 0);
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    ::dup2(slave, 2);
    ::close(slave);
  }
  ~Terminal() {
    ::dup2(kept_, 2);
    ::close(kept_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  /// What was written to it since, up to `awaited` at least: it comes a write at a time, and later.
  std::string text_until(std::string_view awaited) const {
    std::string text;
    pollfd ready = {.fd = master_, .events = POLLIN, .revents = 0};
    constexpr int kDeadlineMs = 10'000;
    while (text.find(awaited) == std::string::npos && ::poll(&ready, 1, kDeadlineMs) > 0) {
      std::array<char, 4096> buffer{};
      const ssize_t size = ::read(master_, buffer.data(), buffer.size());
      text.append(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
    }
    return text;
  }

 private:
  int master_;
  int kept_;
};

/// Rows are drawn over the rows before them, but not over what was said since.
TEST(LiveViewTest, WhatIsSaidStaysOnATerminal) {
  const ManualClock clock;
  const Terminal terminal;
  LiveView view({"island-0"}, clock);
  constexpr const char* kUp = "\x1b[1A";
  view.update(0, "step 1/9");
  EXPECT_THAT(terminal.text_until("step 1/9"), Not(HasSubstr(kUp)));
  view.update(0, "step 2/9");
  EXPECT_THAT(terminal.text_until("step 2/9"), HasSubstr(kUp));
  view.say("island-1 is lost\n");
  view.update(0, "step 3/9");
  EXPECT_THAT(terminal.text_until("step 3/9"),
              AllOf(HasSubstr("island-1 is lost"), HasSubstr("step 3/9"), Not(HasSubstr(kUp))));
}

}  // namespace
}  // namespace atl::run
