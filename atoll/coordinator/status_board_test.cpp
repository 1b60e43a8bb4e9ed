#include "atoll/coordinator/status_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace atl::swarm {
namespace {

using testing::HasSubstr;

TEST(StatusBoardTest, ShowsTheNewestInBothForms) {
  ManualClock clock;
  StatusBoard board({{.run = "r1"}}, clock);
  board.publish(0, {.run = "r1", .step = 7});
  clock.advance(std::chrono::seconds(3));
  const auto status = board.reply("/status");
  EXPECT_EQ(status.type, "application/json");
  EXPECT_EQ(runs_from_json(status.body).at(0).step, 7);
  EXPECT_EQ(runs_from_json(status.body).at(0).age_s, 3);
  const auto metrics = board.reply("/metrics");
  EXPECT_EQ(metrics.type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(metrics.body, HasSubstr("\natoll_step 7\n"));
  for (const char* path : {"/", "/status/", "/status/r1", "/Status", ""}) {
    EXPECT_EQ(board.reply(path).status, 404) << path;
    EXPECT_THAT(board.reply(path).body, HasSubstr("/status (JSON) and /metrics (Prometheus)"));
  }
}

TEST(StatusBoardTest, OfSeveralRunsItShowsAllOrTheOneThatIsNamed) {
  ManualClock clock;
  StatusBoard board({{.name = "a", .run = "r1"}, {.name = "b", .run = "r2"}}, clock);
  board.publish(1, {.run = "r2", .step = 7});
  const auto all = runs_from_json(board.reply("/status").body);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "a");
  EXPECT_EQ(all[0].step, 0);
  EXPECT_EQ(all[1].name, "b");
  EXPECT_EQ(all[1].step, 7);
  EXPECT_EQ(runs_from_json(board.reply("/status/b").body).at(0).run, "r2");
  EXPECT_EQ(runs_from_json(board.reply("/status/a").body).at(0).run, "r1");
  EXPECT_THAT(board.reply("/metrics").body, HasSubstr("\natoll_step{run=\"b\"} 7\n"));
  for (const char* path : {"/status/c", "/status/", "/status/r1", "/metrics/a"}) {
    EXPECT_EQ(board.reply(path).status, 404) << path;
    EXPECT_THAT(board.reply(path).body, HasSubstr("/status/a, /status/b"));
  }
}

TEST(StatusBoardTest, ReadersSeeWholeStatusesWhileOthersArePublished) {
  const ManualClock clock;
  StatusBoard board({RunStatus{}}, clock);
  std::atomic<bool> done = false;
  std::thread reader([&] {
    int64_t before = 0;
    while (!done) {
      const RunStatus status = runs_from_json(board.reply("/status").body).at(0);
      EXPECT_EQ(status.live, status.step);
      EXPECT_GE(status.step, before);
      before = status.step;
    }
  });
  for (int64_t i = 0; i < 2000; ++i) board.publish(0, {.step = i, .live = i});
  done = true;
  reader.join();
}

}  // namespace
}  // namespace atl::swarm
