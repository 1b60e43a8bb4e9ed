#include "atoll/sweep/local_executor.h"
#include "atoll/base/machine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

using testing::HasSubstr;

/// In place of `atoll scaling point FOLDER`: does what FOLDER/do says.
class LocalExecutorTest : public testing::Test {
 protected:
  LocalExecutorTest() {
    const auto script = folder_.write("program", "#!/bin/sh\nexec sh \"$3/do\"\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  }
  PointTask task(const std::string& id, const std::string& action, int64_t cores = 1,
                 double memory_bytes = 1) {
    folder_.write(id + "/do", action);
    return {.id = id, .folder = folder_ / id, .cores = cores, .memory_bytes = memory_bytes};
  }
  LocalExecutor executor(int64_t cores, double memory_bytes) {
    return {folder_ / "program", {.cores = cores, .memory_bytes = memory_bytes}};
  }
  static std::vector<PointEnd> wait(LocalExecutor& executor) {
    std::vector<PointEnd> ended;
    while (executor.num_running() > 0) {
      for (PointEnd& end : executor.poll()) ended.push_back(std::move(end));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return ended;
  }

  TestFolder folder_;
};

TEST_F(LocalExecutorTest, KeepsToItsCoresAndMemory) {
  const std::vector<PointTask> tasks = {task("a", "sleep 100"), task("b", "sleep 100"),
                                        task("c", "sleep 100")};
  LocalExecutor by_cores = executor(2, 100);
  EXPECT_EQ(by_cores.start(tasks), 2U);
  EXPECT_EQ(by_cores.start({&tasks[2], 1}), 0U);
  LocalExecutor by_memory = executor(8, 1.5);
  EXPECT_EQ(by_memory.start(tasks), 1U);
}

TEST_F(LocalExecutorTest, WhatIsLargerThanTheBudgetRunsAlone) {
  const std::vector<PointTask> tasks = {task("a", "true", 4), task("b", "true")};
  LocalExecutor two = executor(2, 100);
  EXPECT_EQ(two.start(tasks), 1U);
  EXPECT_EQ(wait(two).size(), 1U);
  EXPECT_EQ(two.start({&tasks[1], 1}), 1U);
  EXPECT_EQ(wait(two).front().id, "b");
}

TEST_F(LocalExecutorTest, SaysHowAPointEnded) {
  const std::vector<PointTask> tasks = {task("a", "echo no such thing >&2; exit 3"),
                                        task("b", "kill -9 $$")};
  LocalExecutor both = executor(2, 100);
  EXPECT_EQ(both.start(tasks), 2U);
  for (const PointEnd& end : wait(both)) {
    EXPECT_THAT(end.reason, HasSubstr(end.id == "a" ? "no such thing" : "killed by signal 9"));
  }
  EXPECT_FALSE(both.adopt(tasks[0]));
}

TEST_F(LocalExecutorTest, APointWithMoreThreadsThanCoresIsHeldToThem) {
  const std::string allowed = "grep Cpus_allowed_list /proc/self/status >&2";
  std::vector<PointTask> tasks = {task("a", allowed), task("b", allowed)};
  tasks[0].threads = 4;
  LocalExecutor one = executor(1, 100);
  EXPECT_EQ(one.start({tasks.data(), 1}), 1U);
  const std::string held = wait(one).front().reason;
  EXPECT_THAT(held, testing::ContainsRegex("^Cpus_allowed_list:\t[0-9]+$"));
  EXPECT_EQ(one.start({&tasks[1], 1}), 1U);
  const std::string free = wait(one).front().reason;
  EXPECT_EQ(free == held, std::thread::hardware_concurrency() == 1);
}

TEST_F(LocalExecutorTest, ControlGroupsBoundTheMemory) {
  const auto bytes = [&](const std::string& memberships) {
    return group_memory_bytes(memberships, folder_.path());
  };
  folder_.write("a/memory.max", "max\n");
  folder_.write("a/b/memory.max", "8000\n");
  folder_.write("a/b/c/memory.max", "9000\n");
  EXPECT_EQ(bytes("0::/a/b/c\n"), 8000);
  EXPECT_EQ(bytes("0::/a\n"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(bytes(""), std::numeric_limits<double>::infinity());
  EXPECT_EQ(bytes("nonsense\n0:\n"), std::numeric_limits<double>::infinity());
  folder_.write("memory.max", "7000\n");
  EXPECT_EQ(bytes("0::/of/the/host\n"), 7000);
  folder_.write("memory/x/memory.limit_in_bytes", "500\n");
  EXPECT_EQ(bytes("3:cpu:/x\n4:memory:/x\n"), 500);
  EXPECT_LE(whole_machine().memory_bytes, 1e15);
}

TEST_F(LocalExecutorTest, TellsAPointThatWasStoppedFromOneThatWasKilled) {
  const std::vector<PointTask> tasks = {task("a", "echo stopped >&2; exit 130"),
                                        task("b", "kill -2 $$; sleep 100")};
  LocalExecutor both = executor(2, 100);
  EXPECT_EQ(both.start(tasks), 2U);
  for (const PointEnd& end : wait(both)) {
    EXPECT_EQ(end.was_stopped, end.id == "a");
    EXPECT_EQ(end.reason, end.id == "a" ? "stopped" : "killed by signal 2");
  }
}

TEST_F(LocalExecutorTest, StoppingAsksAllToEnd) {
  const std::vector<PointTask> tasks = {
      task("a", "trap 'echo kept >&2; exit 0' INT\ntouch $0.ready\nwhile :; do sleep 0.01; done")};
  LocalExecutor one = executor(2, 100);
  EXPECT_EQ(one.start(tasks), 1U);
  while (!std::filesystem::exists(folder_ / "a/do.ready")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  one.stop();
  EXPECT_EQ(wait(one).front().reason, "kept");
}

}  // namespace
}  // namespace atl::sweep
