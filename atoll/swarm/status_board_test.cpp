#include "atoll/swarm/status_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace atl::swarm {
namespace {

using testing::HasSubstr;

TEST(StatusBoardTest, ShowsTheNewestInBothForms) {
  ManualClock clock;
  StatusBoard board({.run = "r1"}, clock);
  board.publish({.run = "r1", .step = 7});
  clock.advance(std::chrono::seconds(3));
  const auto status = board.reply("/status");
  EXPECT_EQ(status.type, "application/json");
  EXPECT_EQ(run_status_from_json(status.body).step, 7);
  EXPECT_EQ(run_status_from_json(status.body).age_s, 3);
  const auto metrics = board.reply("/metrics");
  EXPECT_EQ(metrics.type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(metrics.body, HasSubstr("\natoll_step 7\n"));
  for (const char* path : {"/", "/status/", "/Status", ""}) {
    EXPECT_EQ(board.reply(path).status, 404) << path;
    EXPECT_THAT(board.reply(path).body, HasSubstr("/status (JSON) and /metrics (Prometheus)"));
  }
}

TEST(StatusBoardTest, ReadersSeeWholeStatusesWhileOthersArePublished) {
  const ManualClock clock;
  StatusBoard board({}, clock);
  std::atomic<bool> done = false;
  std::thread reader([&] {
    int64_t before = 0;
    while (!done) {
      const RunStatus status = run_status_from_json(board.reply("/status").body);
      EXPECT_EQ(status.live, status.step);
      EXPECT_GE(status.step, before);
      before = status.step;
    }
  });
  for (int64_t i = 0; i < 2000; ++i) board.publish({.step = i, .live = i});
  done = true;
  reader.join();
}

}  // namespace
}  // namespace atl::swarm
