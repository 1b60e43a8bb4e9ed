// A point's training, beside a program that does what a test says.
#include "atoll/sweep/point_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

using testing::HasSubstr;
using testing::Not;

class PointFilesTest : public testing::Test {
 protected:
  /// In place of `atoll train SETTINGS --run RUN --json [--together]`; "$4" is RUN.
  std::optional<PointResult> try_train(const std::string& action, int64_t num_islands = 1,
                                       Duration patience = kPointPatience) {
    const auto program = folder_.write("program", "#!/bin/sh\n" + action + "\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    run::RunConfig config;
    config.swarm.replicas = num_islands;
    write_point(folder_ / "point", config);
    train_point(program, folder_ / "point", patience);
    return read_point_result(folder_ / "point");
  }
  PointResult train(const std::string& action, int64_t num_islands = 1,
                    Duration patience = kPointPatience) {
    return try_train(action, num_islands, patience).value();
  }

  TestFolder folder_;
};

TEST_F(PointFilesTest, IslandsEndTogether) {
  EXPECT_THAT(train("echo \"$@\" >&2; exit 1", 2).log, HasSubstr(" --together"));
  EXPECT_THAT(train("echo \"$@\" >&2; exit 1").log, Not(HasSubstr("--together")));
}

TEST_F(PointFilesTest, APointThatGoesOnHasItsTime) {
  const PointResult result = train(
      "mkdir -p $4; for i in $(seq 20); do sleep 0.1; echo $i >> $4/metrics.jsonl; done\n"
      "exit 3",
      1, std::chrono::milliseconds(1500));
  EXPECT_EQ(result.status, 3);
}

TEST_F(PointFilesTest, APointThatIsStuckFails) {
  const PointResult result =
      train("echo waiting >&2; exec sleep 1000", 1, std::chrono::milliseconds(50));
  EXPECT_EQ(result.status, 128 + 9);
  EXPECT_THAT(result.log, HasSubstr("waiting\nno step within"));
}

TEST_F(PointFilesTest, TrainingThatWasStoppedHasNoResult) {
  EXPECT_FALSE(try_train("exit 130"));
  EXPECT_THAT(train("kill -2 $$; sleep 100").log, HasSubstr("killed by signal 2"));
}

TEST_F(PointFilesTest, WhatHasACheckpointAndNoResultIsKept) {
  const auto begin = [&] {
    folder_.write("point/run/config.toml", "[train]\ncheckpoint_every = 5\n");
    std::filesystem::create_directories(folder_ / "point/run/checkpoints/step-00000007");
  };
  begin();
  EXPECT_TRUE(can_go_on(folder_ / "point"));
  write_point(folder_ / "point", {});
  EXPECT_TRUE(can_go_on(folder_ / "point"));
  EXPECT_THAT(read_file(folder_ / "point/settings.toml"), HasSubstr("checkpoint_every = 5\n"));
  folder_.write("point/result.json", to_json({.status = 1}));
  EXPECT_FALSE(can_go_on(folder_ / "point"));
  write_point(folder_ / "point", {});  // To be trained again, from the beginning.
  EXPECT_EQ(read_point_result(folder_ / "point"), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "point/run"));
}

}  // namespace
}  // namespace atl::sweep
