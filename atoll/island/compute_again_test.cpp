// An island that comes to its end anywhere between two checkpoints computes its steps again and
// ends with the bits of one that did not, though the others hear nothing of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "atoll/base/event_log.h"
#include "atoll/base/hash.h"
#include "atoll/island/comeback.h"
#include "atoll/island/holdings.h"
#include "atoll/island/training_run.h"
#include "atoll/method/method.h"
#include "atoll/testing/thread_group.h"
#include "atoll/testing_torch/small_run.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;
using collective::Commit;
using collective::Contribution;

constexpr int64_t kSteps = 22;
constexpr int64_t kCheckpointEvery = 9;

/// What the others made of each round with this island, and what it had sent.
struct Others {
  std::map<int64_t, Commit> commits;
  std::map<int64_t, uint64_t> sums;
};

uint64_t sum_of(const Contribution& contribution) {
  return xxh3(contribution.values.data(), contribution.values.size_bytes());
}

/// Passes on, and remembers.
class Listener final : public collective::Averager {
 public:
  Listener(collective::Averager& others, Others& heard) : others_(others), heard_(heard) {}
  int num_members() const override { return others_.num_members(); }
  void begin(Contribution contribution) override {
    heard_.sums[contribution.round] = sum_of(contribution);
    others_.begin(std::move(contribution));
  }
  Result<Commit> wait(int64_t round) override {
    auto commit = others_.wait(round);
    if (commit) heard_.commits[round] = *commit;
    return commit;
  }
  collective::ExchangeStats stats() const override { return {}; }

 private:
  collective::Averager& others_;
  Others& heard_;
};

/// The others of a run that has been: what they are sent must be what it was.
class Script final : public collective::Averager {
 public:
  explicit Script(const Others& others, bool are_strict = true)
      : others_(others), are_strict_(are_strict) {}
  int num_members() const override { return 2; }
  void begin(Contribution contribution) override {
    if (are_strict_) {
      EXPECT_EQ(sum_of(contribution), others_.sums.at(contribution.round))
          << "of round " << contribution.round;
    }
    begun.push_back(contribution.round);
  }
  Result<Commit> wait(int64_t round) override {
    Commit commit = others_.commits.at(round);
    commit.missed = true;
    return commit;
  }
  std::optional<Commit> take_missed() override {
    if (missed.empty()) return std::nullopt;
    Commit commit = others_.commits.at(missed.front());
    missed.erase(missed.begin());
    commit.missed = true;
    return commit;
  }
  collective::ExchangeStats stats() const override { return {}; }

  std::vector<int64_t> begun;   // Rounds.
  std::vector<int64_t> missed;  // Committed with this island, which does not know it any more.

 private:
  const Others& others_;
  const bool are_strict_;
};

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

class ComputeAgainTest : public testing::Test {
 protected:
  /// An island's process: goes on from what is in its folder, and is killed after step `kill_at`.
  struct Process {
    collective::Averager& others;
    int rank = 1;
    fs::path folder;
    int64_t kill_at = 0;
  };
  Result<run::Summary> train(const method::SyncOptions& sync, const Process& process) {
    run::RunConfig config = SmallRun::config(kSteps, sync);
    config.train.checkpoint_every = kCheckpointEvery;
    Materials materials = small_.materials(config);
    const SystemClock clock;
    fs::create_directories(process.folder);
    const auto found = holdings_in(process.folder, kSteps,
                                   static_cast<size_t>(method::num_fragments(config.sync)));
    Comeback comeback(process.folder, [](const Event& event) { tell_on_stderr(event.sentence); });
    run::RoundLog round_log(rounds_in(process.folder), 1 << 30,
                            [](const std::string& sentence) { ADD_FAILURE() << sentence; });
    collective::Averager& averager = comeback.before(process.others);
    const auto parts = [&]() -> TrainingParts {
      return {.config = config,
              .folder = process.folder,
              .materials = materials,
              .averager = averager,
              .rank = process.rank,
              .clock = clock,
              .round_log = &round_log,
              .diary = &comeback.diary(),
              .on_step = [&](const collective::ProgressReport& report) {
                if (report.step == process.kill_at) throw Killed();
              }};
    };
    std::optional<TrainingRun> run;
    if (found.empty()) {
      comeback.diary().begin({.run = "r", .term = 1, .member = process.rank});
      run.emplace(parts());
    } else {
      const Holding& newest = found.rbegin()->second;
      num_from_disk_ = newest.rounds.size();
      comeback.go_on_from(newest, /*returns=*/true, run, parts);
    }
    return run->train();
  }

  /// Two islands, undisturbed; of the second all that the others know.
  run::Summary undisturbed(const method::SyncOptions& sync, Others& heard) {
    collective::ThreadGroup group(2);
    const auto first = group.member(0);
    const auto second = group.member(1);
    Listener listener(*second, heard);
    auto other = std::async(std::launch::async, [&] {
      return train(sync, {.others = *first, .rank = 0, .folder = folder_ / "whole-0"});
    });
    auto own = train(sync, {.others = listener, .folder = folder_ / "whole-1"});
    EXPECT_TRUE(other.get());
    EXPECT_TRUE(own);
    return *own;
  }

  std::string metrics(const std::string& island) const {
    std::ifstream lines(folder_ / island / "metrics.jsonl");
    std::string out;
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      out += record["step"].dump() + " " + record["loss"].dump() + " " + record["unit"].dump() +
             " " + record["trained"].dump() + "\n";
    }
    return out;
  }

  void kill_at(const method::SyncOptions& sync, const Others& heard, std::vector<int64_t> steps) {
    fs::remove_all(folder_ / "again");
    for (const int64_t step : steps) {
      Script others(heard);
      EXPECT_THROW(
          (void)train(sync, {.others = others, .folder = folder_ / "again", .kill_at = step}),
          Killed);
    }
  }

  SmallRun small_;
  const TestFolder& folder_ = small_.folder();
  size_t num_from_disk_ = 0;
};

std::vector<method::SyncOptions> methods_that_keep_rounds() {
  return {{.method = "diloco", .sync_every = 4},
          {.method = "streaming_diloco",
           .sync_every = 6,
           .num_fragments = 3,
           .fragment_pattern = "balanced",
           .fragment_sync_delay = 1,
           .fragment_update_alpha = 0.5},
          {.method = "streaming_diloco",
           .sync_every = 4,
           .num_fragments = 2,
           .fragment_sync_delay = 3,
           .codec = "int4"},
          {.method = "sparse_loco", .sync_every = 4}};
}

TEST_F(ComputeAgainTest, WhereverItIsKilledTheEndIsTheSame) {
  int64_t first = 1;
  for (const method::SyncOptions& sync : methods_that_keep_rounds()) {
    fs::remove_all(folder_ / "whole-0");
    fs::remove_all(folder_ / "whole-1");
    Others heard;
    const run::Summary expected = undisturbed(sync, heard);
    size_t most_from_disk = 0;
    for (int64_t step = first++; step < kSteps; step += 3) {
      SCOPED_TRACE(sync.method + " " + sync.codec + ", killed after step " + std::to_string(step));
      kill_at(sync, heard, {step});
      Script others(heard);
      const auto again = train(sync, {.others = others, .folder = folder_ / "again"});
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(again->digest, expected.digest);
      EXPECT_EQ(again->train_loss, expected.train_loss);
      EXPECT_EQ(metrics("again"), metrics("whole-1"));
      EXPECT_EQ(again->steps_now, kSteps - (step - 1) / kCheckpointEvery * kCheckpointEvery);
      most_from_disk = std::max(most_from_disk, num_from_disk_);
    }
    EXPECT_GE(most_from_disk, 2) << "else nothing was shown";
  }
}

/// Killed again before the next checkpoint, and while it computes again.
TEST_F(ComputeAgainTest, SeveralTimes) {
  for (const method::SyncOptions& sync : methods_that_keep_rounds()) {
    fs::remove_all(folder_ / "whole-0");
    fs::remove_all(folder_ / "whole-1");
    Others heard;
    const run::Summary expected = undisturbed(sync, heard);
    kill_at(sync, heard, {8, 3, 8, 10, 17, 14, 17});
    Script others(heard);
    const auto again = train(sync, {.others = others, .folder = folder_ / "again"});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->digest, expected.digest);
    EXPECT_EQ(metrics("again"), metrics("whole-1"));
  }
}

/// The others committed it, and its file did not reach the disk.
TEST_F(ComputeAgainTest, TheLastRoundMayComeFromTheOthers) {
  for (const method::SyncOptions& sync : methods_that_keep_rounds()) {
    fs::remove_all(folder_ / "whole-0");
    fs::remove_all(folder_ / "whole-1");
    Others heard;
    const run::Summary expected = undisturbed(sync, heard);
    kill_at(sync, heard, {17});
    const run::LoggedRound last =
        holdings_in(folder_ / "again", kSteps, 3).rbegin()->second.rounds.back();
    fs::remove(last.file);
    Script others(heard);
    others.missed = {last.round};
    const auto again = train(sync, {.others = others, .folder = folder_ / "again"});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->digest, expected.digest);
  }
}

/// As on another processor: then it goes on from the newest commit, at once.
TEST_F(ComputeAgainTest, AnotherContributionThanBeforeIsFound) {
  const method::SyncOptions sync = methods_that_keep_rounds().front();
  Others heard;
  const run::Summary expected = undisturbed(sync, heard);
  kill_at(sync, heard, {8});
  for (const auto& entry : fs::directory_iterator(rounds_in(folder_ / "again"))) {
    if (entry.path().extension() != ".diary") continue;
    std::ofstream(entry.path(), std::ios::app) << R"({"round": 1, "sent": 12345})" << "\n";
  }
  Script others(heard, /*are_strict=*/false);
  testing::internal::CaptureStderr();
  const auto again = train(sync, {.others = others, .folder = folder_ / "again"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("round 1 is not what it was"),
                             testing::HasSubstr("going on from the newest commit"),
                             testing::HasSubstr("step 8 is checkpoint 'step-00000000' and 2")));
  ASSERT_TRUE(again);
  EXPECT_EQ(others.begun.front(), 2) << "of the rounds before nobody has heard";
  EXPECT_EQ(again->digest, expected.digest) << "the script gives the same results";
  EXPECT_NE(again->train_loss, expected.train_loss) << "but the moments were others";
}

}  // namespace
}  // namespace atl::island
