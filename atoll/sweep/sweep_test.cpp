// Sweeps without a process: the database, the driver with an executor that trains nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <functional>

#include "atoll/base/file.h"
#include "atoll/sweep/point_files.h"
#include "atoll/sweep/sweep_driver.h"
#include "atoll/testing/sweep_harness.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// --- database ---

PointRow row_of(double lr, PointStatus status = PointStatus::kDone) {
  PointRow row{.status = status, .identity = {{"train.lr", fmt::format("{}", lr)}}};
  row.key = key_of(row.identity);
  row.seconds = 1.5;
  row.peak_bytes = 1e6;
  if (status == PointStatus::kDone) {
    row.loss = 1 / 3.0;
    row.digest = "ab";
  }
  if (status == PointStatus::kFailed) row.message = "no \"memory\"\nleft";
  return row;
}

TEST(SweepDatabase, KeepsWhatItIsGiven) {
  const TestFolder folder;
  const PointRow done = row_of(1);
  const PointRow failed = row_of(2, PointStatus::kFailed);
  {
    SweepDatabase database(folder / "points.db");
    database.put(row_of(1, PointStatus::kRunning));
    database.put(done);
    database.put(failed);
    database.put(row_of(3));
    database.remove(row_of(3).key);
  }
  const SweepDatabase again(folder / "points.db");
  EXPECT_EQ(again.find(done.key), done);
  EXPECT_EQ(again.find(failed.key), failed);
  EXPECT_EQ(again.find("none"), std::nullopt);
  EXPECT_EQ(again.rows().size(), 2U);
}

TEST(SweepDatabase, RefusesASecondUserAndStrangers) {
  const TestFolder folder;
  {
    const SweepDatabase database(folder / "points.db");
    EXPECT_THAT(message_of([&] { SweepDatabase second(folder / "points.db"); }),
                HasSubstr("in use by another process"));
  }
  const auto run = [&](const char* sql) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(::sqlite3_open((folder / "points.db").c_str(), &raw), SQLITE_OK);
    EXPECT_EQ(::sqlite3_exec(raw, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    ::sqlite3_close(raw);
  };
  run("PRAGMA user_version = 99");
  EXPECT_THAT(
      message_of([&] { SweepDatabase other(folder / "points.db"); }),
      AllOf(HasSubstr("another version of Atoll (99, this one has 1)"), HasSubstr("--import")));
  run("PRAGMA application_id = 7");
  EXPECT_THAT(message_of([&] { SweepDatabase other(folder / "points.db"); }),
              HasSubstr("the database of another program"));
  const fs::path text = folder.write("text.db", std::string(5000, 'x'));
  EXPECT_THAT(message_of([&] { SweepDatabase other(text); }),
              AllOf(HasSubstr("is no database"), HasSubstr("the sweep begins anew")));
  folder.write("points.jsonl", "");
  EXPECT_THAT(message_of([&] { SweepDatabase other(text); }),
              AllOf(HasSubstr("delete it"), HasSubstr("are taken over from")));
  EXPECT_THAT(message_of([&] { SweepDatabase other(folder / "none" / "points.db"); }),
              HasSubstr("cannot be opened"));
}

TEST(SweepDatabase, ADamagedOneSaysWhatRecovers) {
  const TestFolder folder;
  const fs::path file = folder / "points.db";
  {
    SweepDatabase database(file);
    for (int i = 0; i < 200; ++i) database.put(row_of(i));
  }
  std::string bytes = read_file(file);
  std::fill(bytes.begin() + 4096, bytes.end(), 'x');
  folder.write("points.db", bytes);
  EXPECT_THAT(message_of([&] { SweepDatabase(file).rows(); }),
              AllOf(HasSubstr("a damaged one"), HasSubstr("delete it")));
}

TEST(SweepDatabase, ResultsTravelAsText) {
  std::vector<PointRow> rows = {row_of(1), row_of(2, PointStatus::kFailed),
                                row_of(3, PointStatus::kRunning)};
  const std::string text = points_text(rows);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  rows.pop_back();
  std::ranges::sort(rows, {}, &PointRow::key);
  EXPECT_EQ(parse_points(text, "p.jsonl"), rows);
  SweepDatabase database(":memory:");
  EXPECT_EQ(database.import(rows).added, 2U);
  EXPECT_EQ(database.import(rows).known, 2U);
  // What is there stays, but for a failure of what was done elsewhere.
  const auto is_done = [](const PointRow& row) { return row.status == PointStatus::kDone; };
  PointRow done = *std::ranges::find_if(rows, is_done);
  PointRow failed = *std::ranges::find_if_not(rows, is_done);
  done.loss = 9;
  EXPECT_EQ(database.import({done}).differ, 1U);
  EXPECT_EQ(database.find(done.key)->loss, 1 / 3.0);
  PointRow again = failed;
  again.status = PointStatus::kRunning;
  database.put(again);
  EXPECT_EQ(database.import({failed}).known, 1U);  // It is tried again.
  EXPECT_EQ(database.find(failed.key)->status, PointStatus::kRunning);
  failed.status = PointStatus::kDone;
  failed.loss = 4;
  EXPECT_EQ(database.import({failed}).added, 1U);
  EXPECT_EQ(database.find(failed.key)->loss, 4);
}

TEST(SweepDatabase, SettingsThatAreNoTextsAreNamed) {
  const TestFolder folder;
  SweepDatabase(folder / "points.db").put(row_of(1));
  sqlite3* raw = nullptr;
  ASSERT_EQ(::sqlite3_open((folder / "points.db").c_str(), &raw), SQLITE_OK);
  EXPECT_EQ(
      ::sqlite3_exec(raw, "UPDATE points SET identity = '{\"a\": 1}'", nullptr, nullptr, nullptr),
      SQLITE_OK);
  ::sqlite3_close(raw);
  const SweepDatabase database(folder / "points.db");
  EXPECT_THAT(message_of([&] { database.rows(); }),
              HasSubstr("points.db', settings of a point: 'a' is no text"));
}

TEST(SweepDatabase, RefusesTextThatIsNoResult) {
  const auto refusal_of = [](const std::string& text) {
    return message_of([&] { parse_points(text, "p.jsonl"); });
  };
  const std::string line = points_text({row_of(1)});
  EXPECT_THAT(refusal_of("x\n"), HasSubstr("p.jsonl, line 1: it is no JSON object"));
  EXPECT_THAT(refusal_of("{}\n"), HasSubstr("line 1"));
  EXPECT_THAT(refusal_of(line + "\n" + line),
              AllOf(HasSubstr("line 3"), HasSubstr("the same point")));
  std::string edited = line;
  edited.replace(edited.find("\"train.lr\":\"1\""), 14, "\"train.lr\":\"2\"");
  EXPECT_THAT(refusal_of(edited), HasSubstr("its key is not that of its settings"));
  std::string running = line;
  running.replace(running.find("done"), 4, "idle");
  EXPECT_THAT(refusal_of(running), HasSubstr("status must be done or failed"));
}

// --- driver ---

/// Ends every point at the next poll, with a loss that the test says.
class FakeExecutor final : public PointExecutor {
 public:
  using Loss = std::function<std::optional<double>(const run::RunConfig&)>;
  explicit FakeExecutor(Loss loss, size_t room = 100) : loss_(std::move(loss)), room_(room) {}

  size_t start(std::span<const PointTask> tasks) override {
    const size_t count = std::min(tasks.size(), room_ - running_.size());
    for (const PointTask& task : tasks.first(count)) {
      running_.push_back(task);
      ++num_started;
    }
    most_running = std::max(most_running, running_.size());
    return count;
  }
  bool adopt(const PointTask& task) override {
    if (!adopts) return false;
    running_.push_back(task);
    return true;
  }
  std::vector<PointEnd> poll() override {
    std::vector<PointEnd> ended;
    for (const PointTask& task : running_) {
      const run::RunConfig config = run::load_config(point_settings_file(task.folder), {});
      if (before_end) before_end(task.folder);
      PointResult result{.seconds = 2, .peak_bytes = 3e6};
      const auto loss = loss_(config);
      if (loss) {
        result.summary = run::Summary{.val_loss = *loss, .digest = "d"};
      } else {
        result.status = 1;
        result.log = "the reason";
      }
      if (leaves_results && num_stopped == 0) {
        write_file_atomically(point_result_file(task.folder), to_json(result));
      }
      ended.push_back({task.id, "killed by signal 9", num_stopped > 0});
      if (num_stopped > 0) --num_stopped;
    }
    running_.clear();
    return ended;
  }
  void stop() override {}
  size_t num_running() const override { return running_.size(); }
  int64_t num_cores() const override { return 1; }

  std::function<void(const fs::path& folder)> before_end;
  size_t num_started = 0;
  size_t most_running = 0;
  bool adopts = false;
  bool leaves_results = true;
  size_t num_stopped = 0;  // Ends of points that others have stopped, before any that is over.

 private:
  Loss loss_;
  size_t room_;
  std::vector<PointTask> running_;
};

std::optional<double> middling(const run::RunConfig& config) {
  return 3 + std::pow(std::log2(config.train.lr / 2e-3), 2);
}

class SweepDriverTest : public testing::Test {
 protected:
  SweepOptions options() const { return {.folder = folder_.path(), .cores = 2}; }
  TestFolder folder_;
  SystemClock clock_;
  SweepSettings settings_ = usual();
};

TEST_F(SweepDriverTest, TrainsUntilTheBestIsInteriorAndNothingTwice) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor(middling, 3);
  {
    SweepDriver driver(settings_, database, options());
    EXPECT_EQ(driver.outlook().num_points, 12U);  // With one extension foreseen for each cell.
    EXPECT_FALSE(driver.outlook().is_timed);
    EXPECT_TRUE(driver.train(executor, clock_));
    EXPECT_EQ(executor.num_started, 4U * 3);  // 1e-3, 2e-3 and the extension.
    EXPECT_EQ(executor.most_running, 3U);
    EXPECT_TRUE(driver.state().done());
    EXPECT_EQ(driver.outlook().num_points, 0U);
    EXPECT_TRUE(driver.outlook().is_timed);
  }
  SweepDriver again(settings_, database, options());
  EXPECT_TRUE(again.train(executor, clock_));
  EXPECT_EQ(executor.num_started, 12U);
  EXPECT_EQ(read_points(folder_ / "points.jsonl").size(), 12U);
  EXPECT_TRUE(fs::is_empty(folder_ / "points"));
  EXPECT_EQ(again.task(point_of(2)).memory_bytes, 3e6);  // As measured.
  SweepPoint larger = point_of(2);
  larger.at[kBatchTokens] = 1024;
  EXPECT_EQ(again.task(larger).memory_bytes, settings_.expected_bytes(larger));
}

TEST_F(SweepDriverTest, PlacesWithTheSameSettingsAreTrainedOnce) {
  // Half the tokens of the one grid are all of the other's.
  const SweepSettings twice =
      settings_of(std::string("[sweep]\nextensions = 0\nhalving_rungs = 2\n") + kTrain + kModels +
                  "[[grid]]\nname = 'a'\nreplicas = 0\nlr = 1e-3\nbatch_tokens = 512\n"
                  "tokens_factor = 2\nsearch = 'halving'\n"
                  "[[grid]]\nname = 'b'\nreplicas = 0\nlr = 1e-3\nbatch_tokens = 512\n");
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor(middling);
  SweepDriver driver(twice, database, options());
  const auto points = driver.state().points();
  EXPECT_EQ(points.size(), 4U);  // Two sizes; of the first grid the first rung.
  EXPECT_EQ(driver.distinct(points).size(), 2U);
  EXPECT_EQ(driver.outlook().num_points, 4U);
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_EQ(executor.num_started, 4U);
}

TEST_F(SweepDriverTest, AFailedPointIsRecordedAndOthersGoOn) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor([](const run::RunConfig& config) -> std::optional<double> {
    if (config.train.lr > 3e-3) return std::nullopt;
    return middling(config);
  });
  SweepDriver driver(settings_, database, options());
  EXPECT_TRUE(driver.train(executor, clock_));
  const PointRow* failed = driver.row(point_of(2, 4e-3));
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->status, PointStatus::kFailed);
  EXPECT_EQ(failed->message, "the reason");
  const auto state = driver.state();
  EXPECT_TRUE(state.cells[1].state.best);
  EXPECT_TRUE(state.cells[1].state.axes[kLr].beside_failed);
  // They are left alone, unless asked for.
  const size_t before = executor.num_started;
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_EQ(executor.num_started, before);
  driver.retry_failed();
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_EQ(executor.num_started, before + 4);
}

TEST_F(SweepDriverTest, ALossThatIsNotFiniteIsAFailure) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor([](const run::RunConfig&) { return std::nan(""); });
  SweepDriver driver(settings_, database, options());
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_THAT(driver.row(point_of(2))->message, HasSubstr("not a finite number"));
}

TEST_F(SweepDriverTest, APointWithoutAResultFailsWithTheReason) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor(middling);
  executor.leaves_results = false;
  SweepDriver driver(settings_, database, options());
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_THAT(driver.row(point_of(2))->message, HasSubstr("killed by signal 9"));
}

TEST_F(SweepDriverTest, APointThatOthersStopGoesOnSomeTimes) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor(middling, 1);
  executor.num_stopped = 3;
  SweepDriver driver(settings_, database, options());
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_EQ(executor.num_started, 12U + 3);
  const auto points = driver.state().points();
  const auto is_done = [&](const SweepPoint& point) {
    return driver.row(point)->status == PointStatus::kDone;
  };
  EXPECT_TRUE(std::ranges::all_of(points, is_done));
  SweepDatabase other(":memory:");
  FakeExecutor again(middling, 1);
  again.num_stopped = 4;
  SweepDriver second(settings_, other, options());
  EXPECT_TRUE(second.train(again, clock_));
  EXPECT_EQ(std::ranges::count_if(points,
                                  [&](const SweepPoint& point) {
                                    const PointRow* row = second.row(point);
                                    return row != nullptr && row->status == PointStatus::kFailed;
                                  }),
            1);
}

TEST_F(SweepDriverTest, PointsThatTakeLongWriteCheckpoints) {
  // 1e6 tokens for a parameter take hours, as far as is known before the first point is over.
  const SweepSettings longer =
      settings_of(std::string("[sweep]\ntokens_per_param = 1e6\n") + kTrain + kModels + kGrid);
  const auto every = [&](const SweepSettings& settings) {
    SweepDatabase database(":memory:");
    int64_t most = 0;
    FakeExecutor executor([&](const run::RunConfig& config) {
      most = std::max(most, config.train.checkpoint_every);
      return middling(config);
    });
    SweepDriver driver(settings, database, options());
    EXPECT_TRUE(driver.train(executor, clock_));
    return most;
  };
  EXPECT_EQ(every(settings_), 0);
  EXPECT_GT(every(longer), 100);
  EXPECT_EQ(every(settings_of(std::string("[sweep]\ntokens_per_param = 1e6\n") + kTrain +
                              "checkpoint_every = 77\n" + kModels + kGrid)),
            77);
}

TEST_F(SweepDriverTest, WhatAFailedPointCanGoOnFromIsKept) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor(middling);
  executor.leaves_results = false;
  executor.before_end = [](const fs::path& folder) {
    fs::create_directories(folder / "run/checkpoints/step-00000007");
    write_file_atomically(folder / "run/config.toml", "");
  };
  SweepDriver driver(settings_, database, options());
  EXPECT_TRUE(driver.train(executor, clock_));
  const fs::path folder = driver.task(point_of(2)).folder;
  EXPECT_TRUE(can_go_on(folder));
  driver.retry_failed();
  EXPECT_TRUE(can_go_on(folder));
  executor.leaves_results = true;
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_TRUE(fs::is_empty(folder_ / "points"));
}

TEST_F(SweepDriverTest, APointOverTheMemoryBudgetIsNotStarted) {
  SweepDatabase database(folder_ / "points.db");
  FakeExecutor executor(middling);
  SweepOptions small = options();
  small.memory_bytes = 1e6;
  SweepDriver driver(settings_, database, small);
  EXPECT_EQ(driver.outlook().num_too_large, 12U);
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_EQ(executor.num_started, 0U);
  EXPECT_THAT(
      driver.shortage(),
      AllOf(HasSubstr("8 points need more memory than the budget, 1.0 MB"), HasSubstr("--memory")));
  // Nothing is recorded: where there is more, they are trained.
  EXPECT_TRUE(database.rows().empty());
  SweepDriver larger(settings_, database, options());
  EXPECT_TRUE(larger.train(executor, clock_));
  EXPECT_EQ(larger.shortage(), "");
  EXPECT_EQ(larger.outlook().num_too_large, 0U);
  EXPECT_EQ(executor.num_started, 12U);
}

TEST_F(SweepDriverTest, ADriverThatIsGoneLeavesResultsAndPointsUnderWay) {
  SweepDatabase database(folder_ / "points.db");
  std::vector<SweepPoint> points;
  {
    const SweepDriver driver(settings_, database, options());
    points = driver.state().wanted();
    for (size_t i = 0; i < 3; ++i) {
      const PointTask task = driver.task(points[i]);
      write_point(task.folder, settings_.config(points[i]));
      database.put({.key = driver.key(points[i]), .identity = settings_.identity(points[i])});
    }
    // The first has ended meanwhile.
    PointResult result{.seconds = 1};
    result.summary = run::Summary{.val_loss = 2.5};
    write_file_atomically(point_result_file(driver.task(points[0]).folder), to_json(result));
  }
  FakeExecutor executor(middling);
  executor.adopts = true;
  SweepDriver driver(settings_, database, options());
  EXPECT_EQ(driver.row(points[0]), nullptr);
  driver.resume(executor);
  ASSERT_NE(driver.row(points[0]), nullptr);
  EXPECT_EQ(driver.row(points[0])->loss, 2.5);
  EXPECT_EQ(executor.num_running(), 2U);
  EXPECT_TRUE(driver.train(executor, clock_));
  EXPECT_EQ(executor.num_started, driver.state().points().size() - 3);
  // Those that nobody knows of are started again.
  database.remove(driver.key(points[5]));
  database.put({.key = driver.key(points[5]), .identity = settings_.identity(points[5])});
  SweepDriver third(settings_, database, options());
  FakeExecutor other(middling);
  third.resume(other);
  EXPECT_TRUE(third.train(other, clock_));
  EXPECT_EQ(other.num_started, 1U);
}

TEST_F(SweepDriverTest, WhatRunsIsWaitedForThoughNobodyAsksForItNow) {
  SweepDatabase database(folder_ / "points.db");
  SweepPoint other = point_of(2);
  other.seed = 7;  // As of a file that was edited since.
  {
    const SweepDriver driver(settings_, database, options());
    write_point(driver.task(other).folder, settings_.config(other));
    database.put({.key = driver.key(other), .identity = settings_.identity(other)});
  }
  FakeExecutor executor(middling);
  executor.adopts = true;
  SweepDriver driver(settings_, database, options());
  driver.resume(executor);
  EXPECT_EQ(executor.num_running(), 1U);
  EXPECT_TRUE(driver.train(executor, clock_));
  ASSERT_NE(driver.row(other), nullptr);
  EXPECT_EQ(driver.row(other)->status, PointStatus::kDone);
  EXPECT_EQ(executor.num_started, driver.state().points().size());
}

}  // namespace
}  // namespace atl::sweep
