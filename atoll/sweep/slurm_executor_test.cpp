// The executor beside commands that say what a test wants; a real Slurm is in
// tests/processes/slurm_test.py.
#include "atoll/sweep/slurm_executor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class SlurmExecutorTest : public testing::Test {
 protected:
  SlurmExecutorTest() {
    // Each command notes its words in `calls`; it fails when a file "NAME.fails" has the reason.
    for (const char* name : {"sbatch", "squeue", "scancel", "scontrol", "sacct"}) {
      const fs::path file =
          folder_.write(fs::path("bin") / name,
                        fmt::format("#!/bin/sh\ncd {}\necho {} \"$@\" >> calls\n"
                                    "[ ! -e {}.fails ] || {{ cat {}.fails >&2; exit 1; }}\n{}\n",
                                    folder_.path().string(), name, name, name, body_of(name)));
      fs::permissions(file, fs::perms::owner_all);
    }
    set_config(1001, "none");
    says("queue", "");
    says("accounts", "");
    ::setenv("PATH", ((folder_ / "bin").string() + ":" + path_).c_str(), 1);
  }
  ~SlurmExecutorTest() override { ::setenv("PATH", path_.c_str(), 1); }

  static const char* body_of(const std::string& name) {
    if (name == "sbatch") return "echo . >> submitted; expr 100 + $(wc -l < submitted)";
    if (name == "squeue") return "cat queue";
    if (name == "scontrol") return "[ $1 = update ] || cat config";
    return name == "sacct" ? "cat accounts" : "";
  }

  void set_config(int64_t max_array_size, const std::string& accounting) {
    says("config", fmt::format("MaxArraySize = {}\nAccountingStorageType = accounting_storage/{}\n",
                               max_array_size, accounting));
  }
  void says(const std::string& file, const std::string& text) { folder_.write(file, text); }

  SlurmExecutor executor(const SlurmOptions& options = {}) {
    return {"/opt/atoll", folder_ / "slurm", options, clock_};
  }
  PointTask task(const std::string& id, int64_t cores = 1) const {
    return {.id = id, .folder = folder_ / id, .cores = cores};
  }
  std::vector<PointTask> tasks(int count) const {
    std::vector<PointTask> tasks;
    for (int i = 0; i < count; ++i) tasks.push_back(task(fmt::format("p{}", i)));
    return tasks;
  }

  /// The calls of a command since the last look, a line each.
  std::string calls(const std::string& name) {
    std::string found;
    std::ifstream lines(folder_ / "calls");
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name + " ")) found += line + "\n";
    }
    fs::remove(folder_ / "calls");
    return found;
  }

  /// The folder of the n-th array, in the order of their job ids.
  fs::path array(int job) const {
    for (const fs::path& folder : SlurmArray::find(folder_ / "slurm")) {
      if (read_file(folder / "job") == fmt::format("{}\n", job)) return folder;
    }
    return {};
  }
  void leave(int job, int index, const std::string& file, const std::string& text) const {
    ASSERT_FALSE(array(job).empty());
    std::ofstream(array(job) / fmt::format("{}-{}", file, index)) << text;
  }
  std::string line(int job, int index, const std::string& state,
                   const std::string& reason = "None") const {
    return fmt::format("{}|{}|{}|{}|{}\n", array(job).filename().string(), job, index, state,
                       reason);
  }

  /// Starts them one by one, as the driver does, and has them sent.
  void send(SlurmExecutor& slurm, const std::vector<PointTask>& tasks) {
    for (const PointTask& one : tasks) EXPECT_EQ(slurm.start({&one, 1}), 1U);
    EXPECT_THAT(slurm.poll(), ElementsAre());
  }

  /// "POINT: reason" of each, after some seconds; with "(goes on)" where it was stopped.
  std::vector<std::string> poll(SlurmExecutor& slurm, int64_t seconds = 1) {
    clock_.advance(std::chrono::seconds(seconds));
    std::vector<std::string> ends;
    for (const PointEnd& end : slurm.poll()) {
      ends.push_back(end.id + ": " + end.reason + (end.was_stopped ? " (goes on)" : ""));
    }
    return ends;
  }

  TestFolder folder_;
  std::string path_ = std::getenv("PATH");
  ManualClock clock_;
};

TEST_F(SlurmExecutorTest, SendsPointsOfOneKindAsOneArray) {
  SlurmExecutor slurm = executor({.partition = "long"});
  const std::vector<PointTask> sent = {task("a"), task("b"), task("c", 4)};
  send(slurm, sent);
  EXPECT_EQ(slurm.num_running(), 3U);
  const std::string said = calls("sbatch");
  EXPECT_THAT(said, AllOf(HasSubstr("--partition=long --cpus-per-task=1"), HasSubstr("=0-1 "),
                          HasSubstr("--cpus-per-task=4"), HasSubstr("=0-0 ")));
  EXPECT_EQ(read_file(array(101) / "points"), "a\nb\n");
  EXPECT_THAT(read_file(array(102) / "commands"),
              HasSubstr("set -- /opt/atoll scaling point " + (folder_ / "c").string()));
}

TEST_F(SlurmExecutorTest, ArraysAreNoLargerThanSlurmTakes) {
  set_config(2, "none");
  SlurmExecutor slurm = executor({.cpus_per_task = 3});
  send(slurm, tasks(5));
  const std::string said = calls("sbatch");
  EXPECT_EQ(std::ranges::count(said, '\n'), 3);
  EXPECT_THAT(said, AllOf(HasSubstr("=0-1 "), HasSubstr("=0-0 "), Not(HasSubstr("=0-2"))));
  set_config(0, "none");
  EXPECT_THAT(message_of([&] { executor(); }), HasSubstr("no job arrays"));
}

TEST_F(SlurmExecutorTest, ReportsEachEndOnce) {
  SlurmExecutor slurm = executor();
  send(slurm, tasks(3));
  EXPECT_THAT(poll(slurm), ElementsAre());
  says("queue", line(101, 1, "RUNNING") + line(101, 2, "PENDING", "Resources"));
  leave(101, 0, "exit", "0\n");
  EXPECT_THAT(poll(slurm), ElementsAre("p0: Slurm job 101_0: exit code 0"));
  says("queue", line(101, 1, "FAILED", "NonZeroExitCode") + line(101, 2, "TIMEOUT", "TimeLimit"));
  leave(101, 1, "exit", "3\n");
  folder_.write("p1/point.log", "first\natoll: no settings\n");
  EXPECT_THAT(poll(slurm), ElementsAre("p1: Slurm job 101_1: exit code 3: atoll: no settings",
                                       AllOf(HasSubstr("p2"), HasSubstr("TIMEOUT"))));
  EXPECT_THAT(poll(slurm, 100), ElementsAre());
  EXPECT_EQ(slurm.num_running(), 0U);
  EXPECT_THAT(SlurmArray::find(folder_ / "slurm"), ElementsAre());  // Nothing is left behind.
}

TEST_F(SlurmExecutorTest, AsksSlurmNowAndThenAndOnFailure) {
  SlurmExecutor slurm = executor({.poll_seconds = 10});
  send(slurm, tasks(2));
  says("queue", line(101, 0, "RUNNING") + line(101, 1, "RUNNING"));
  calls("squeue");
  for (int i = 0; i < 9; ++i) poll(slurm);
  EXPECT_EQ(calls("squeue"), "");
  poll(slurm);
  EXPECT_THAT(calls("squeue"), HasSubstr("--states=all"));
  leave(101, 0, "exit", "1\n");
  poll(slurm);
  EXPECT_THAT(calls("squeue"), HasSubstr(array(101).filename().string()));
}

TEST_F(SlurmExecutorTest, GoesOnWhileSlurmIsAway) {
  SlurmExecutor slurm = executor();
  send(slurm, tasks(2));
  says("squeue.fails", "Unable to contact slurm controller");
  testing::internal::CaptureStderr();
  EXPECT_THAT(poll(slurm, 60), ElementsAre());
  EXPECT_THAT(poll(slurm, 60), ElementsAre());
  const std::string warned = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warned, AllOf(HasSubstr("squeue"), HasSubstr("exit code 1"),
                            HasSubstr("Unable to contact slurm controller")));
  EXPECT_EQ(std::ranges::count(warned, '\n'), 1);  // Said once.
  leave(101, 0, "exit", "0\n");
  EXPECT_THAT(poll(slurm), ElementsAre(HasSubstr("p0")));
  fs::remove(folder_ / "squeue.fails");
  says("queue", line(101, 1, "NODE_FAIL"));
  EXPECT_THAT(poll(slurm, 60), ElementsAre(HasSubstr("NODE_FAIL")));
}

TEST_F(SlurmExecutorTest, ATaskThatVanishesIsGivenUpAfterAWhile) {
  SlurmExecutor slurm = executor();
  send(slurm, tasks(1));
  EXPECT_THAT(poll(slurm, 20), ElementsAre());
  EXPECT_THAT(poll(slurm, 20), ElementsAre());
  EXPECT_THAT(poll(slurm, 20), ElementsAre(HasSubstr("Slurm no longer knows it")));
}

TEST_F(SlurmExecutorTest, AccountsTellWhatTheQueueHasForgotten) {
  set_config(100, "slurmdbd");
  SlurmExecutor slurm = executor();
  send(slurm, tasks(2));
  says("queue", line(101, 1, "RUNNING"));
  says("accounts", "101_0|OUT_OF_MEMORY|0:125\n101_1|FAILED|1:0\n");
  EXPECT_THAT(poll(slurm, 20), ElementsAre(AllOf(HasSubstr("p0"), HasSubstr("OUT_OF_MEMORY"))));
}

TEST_F(SlurmExecutorTest, AnotherSweepTakesOverWhatRuns) {
  {
    SlurmExecutor killed = executor();
    send(killed, tasks(3));
    leave(101, 0, "exit", "0\n");
    EXPECT_EQ(poll(killed).size(), 1U);
  }
  says("queue", line(101, 1, "RUNNING") + line(101, 2, "PENDING"));
  SlurmExecutor slurm = executor();
  EXPECT_FALSE(slurm.adopt(task("p0")));  // Reported before.
  EXPECT_TRUE(slurm.adopt(task("p1")));
  EXPECT_FALSE(slurm.adopt(task("other")));
  EXPECT_EQ(slurm.num_running(), 1U);
  calls("sbatch");
  send(slurm, {task("p1"), task("p2")});  // Whether the driver asked or not.
  EXPECT_EQ(calls("sbatch"), "");
  leave(101, 1, "exit", "0\n");
  leave(101, 2, "exit", "0\n");
  EXPECT_EQ(poll(slurm).size(), 2U);
}

TEST_F(SlurmExecutorTest, AnArrayWhoseJobIsNotKnownIsFoundByItsName) {
  for (const bool has_begun : {false, true}) {
    {
      SlurmExecutor killed = executor();
      send(killed, tasks(1));
    }
    const int job = has_begun ? 102 : 101;
    says("queue", has_begun ? "" : line(job, 0, "PENDING"));
    if (has_begun) leave(job, 0, "started", fmt::format("{}\n", job));
    fs::remove(array(job) / "job");  // As if killed before sbatch had answered.
    SlurmExecutor slurm = executor();
    EXPECT_TRUE(slurm.adopt(task("p0")));
    if (!has_begun) {
      leave(job, 0, "exit", "0\n");
      EXPECT_THAT(poll(slurm), ElementsAre(HasSubstr("job 101_0")));
    }
  }
}

TEST_F(SlurmExecutorTest, AnArrayThatWasNeverSentIsForgotten) {
  {
    SlurmExecutor killed = executor();
    send(killed, tasks(1));
  }
  fs::remove(array(101) / "job");
  fs::create_directories(folder_ / "slurm" / "atoll-half");
  SlurmExecutor slurm = executor();
  EXPECT_FALSE(slurm.adopt(task("p0")));
  EXPECT_THAT(SlurmArray::find(folder_ / "slurm"), ElementsAre());
}

TEST_F(SlurmExecutorTest, NoMoreRunThanMay) {
  SlurmExecutor slurm = executor({.max_running = 2});
  send(slurm, tasks(3));
  EXPECT_THAT(calls("sbatch"), HasSubstr("--array=0-2%2 "));
  says("queue", line(101, 0, "RUNNING") + line(101, 1, "RUNNING") + line(101, 2, "PENDING"));
  send(slurm, {task("q0"), task("q1")});
  EXPECT_EQ(slurm.num_running(), 5U);
  leave(101, 0, "exit", "0\n");
  EXPECT_EQ(poll(slurm).size(), 1U);
  EXPECT_EQ(poll(slurm).size(), 0U);
  EXPECT_EQ(calls("sbatch"), "");  // Two of the first array may run.
  leave(101, 1, "exit", "0\n");
  EXPECT_EQ(poll(slurm).size(), 1U);
  EXPECT_EQ(poll(slurm).size(), 0U);
  EXPECT_THAT(calls("sbatch"), HasSubstr("--array=0-1%1 "));
  // Once the first array is over, the second may run as many.
  says("queue", line(102, 0, "RUNNING") + line(102, 1, "PENDING"));
  leave(101, 2, "exit", "0\n");
  EXPECT_EQ(poll(slurm, 20).size(), 1U);
  poll(slurm, 20);
  EXPECT_EQ(calls("scontrol"), "scontrol update JobId=102 ArrayTaskThrottle=2\n");
}

TEST_F(SlurmExecutorTest, NoMoreAreSentThanMayBe) {
  SlurmExecutor slurm = executor({.max_submitted = 4});
  send(slurm, tasks(9));
  EXPECT_THAT(calls("sbatch"), AllOf(HasSubstr("=0-3 "), Not(HasSubstr("\nsbatch"))));
  leave(101, 2, "exit", "0\n");
  EXPECT_EQ(poll(slurm).size(), 1U);
  EXPECT_EQ(poll(slurm).size(), 0U);
  EXPECT_THAT(calls("sbatch"), HasSubstr("=0-0 "));
  EXPECT_EQ(slurm.num_running(), 8U);
}

TEST_F(SlurmExecutorTest, RefusalsAreToldWithTheCommand) {
  says("sbatch.fails", "sbatch: error: invalid partition specified: none");
  {
    SlurmExecutor slurm = executor({.partition = "none"});
    slurm.start(tasks(1));
    EXPECT_THAT(message_of([&] { slurm.poll(); }),
                AllOf(HasSubstr("'sbatch "), HasSubstr("--partition=none"),
                      HasSubstr("exit code 1: sbatch: error: invalid partition")));
    EXPECT_THAT(SlurmArray::find(folder_ / "slurm"), ElementsAre());
  }
  // While others run it is no reason to end.
  fs::remove(folder_ / "sbatch.fails");
  SlurmExecutor slurm = executor();
  send(slurm, tasks(1));
  says("queue", line(101, 0, "RUNNING"));
  says("sbatch.fails", "try later");
  testing::internal::CaptureStderr();
  send(slurm, {task("q")});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("try later"));
  fs::remove(folder_ / "sbatch.fails");
  calls("sbatch");
  poll(slurm);
  EXPECT_EQ(calls("sbatch"), "");
  poll(slurm, 60);
  EXPECT_THAT(calls("sbatch"), HasSubstr("--array=0-0 "));
}

TEST_F(SlurmExecutorTest, AnAnswerThatIsNoJobIdIsRefused) {
  folder_.write("bin/sbatch", "#!/bin/sh\necho Submitted batch job 5\n");
  SlurmExecutor slurm = executor();
  slurm.start(tasks(1));
  EXPECT_THAT(message_of([&] { slurm.poll(); }), HasSubstr("no job id"));
}

TEST_F(SlurmExecutorTest, MissingCommandsAreNamed) {
  ::setenv("PATH", (folder_ / "nothing").c_str(), 1);
  EXPECT_THAT(
      message_of([&] { executor(); }),
      AllOf(HasSubstr("sbatch, squeue, scancel, scontrol not found"), HasSubstr("[slurm]")));
}

TEST_F(SlurmExecutorTest, WhereSlurmDoesNotAnswerThisMachineIsAChoice) {
  says("scontrol.fails", "Unable to contact slurm controller");
  EXPECT_THAT(
      message_of([&] { executor(); }),
      AllOf(HasSubstr("cannot use Slurm"), HasSubstr("Unable to contact"), HasSubstr("--local")));
}

TEST_F(SlurmExecutorTest, StopTakesBackWhatWaitsAndAsksWhatRuns) {
  executor().stop();  // Nothing to stop.
  SlurmExecutor slurm = executor();
  send(slurm, tasks(2));
  slurm.stop();
  const std::string name = array(101).filename().string();
  EXPECT_EQ(calls("scancel"),
            fmt::format("scancel --state=PENDING --name={0}\n"
                        "scancel --state=RUNNING --batch --signal=USR1 --name={0}\n",
                        name));
  // One that was about to begin hears of it later.
  says("queue", line(101, 0, "CONFIGURING") + line(101, 1, "PENDING"));
  poll(slurm, 20);
  poll(slurm, 20);
  EXPECT_THAT(calls("scancel"), HasSubstr("--signal=USR1 --name=" + name));
  // All that waited are one line.
  says("queue", line(101, 0, "FAILED") + fmt::format("{}|101|N/A|CANCELLED|None\n", name));
  leave(101, 0, "exit", "130\n");
  EXPECT_THAT(poll(slurm, 20),
              ElementsAre(HasSubstr("exit code 130"), HasSubstr("it was cancelled")));
  slurm.start(std::vector{task("q")});
  EXPECT_THAT(poll(slurm), ElementsAre("q: it was not begun"));
}

TEST_F(SlurmExecutorTest, WhatAnEarlierSweepHasStoppedHasNotFailed) {
  {
    SlurmExecutor killed = executor();
    send(killed, tasks(3));
    killed.stop();
  }
  const std::string name = array(101).filename().string();
  says("queue", line(101, 0, "FAILED") + fmt::format("{}|101|N/A|CANCELLED|None\n", name));
  leave(101, 0, "exit", "130\n");
  SlurmExecutor slurm = executor();
  for (const PointTask& one : tasks(3)) EXPECT_TRUE(slurm.adopt(one));
  EXPECT_THAT(poll(slurm, 20),
              ElementsAre(EndsWith("(goes on)"), EndsWith("(goes on)"), EndsWith("(goes on)")));
  send(slurm, tasks(1));  // In an array of its own, which nobody has stopped.
  says("queue", line(102, 0, "CANCELLED"));
  EXPECT_THAT(poll(slurm, 20), ElementsAre(AllOf(HasSubstr("cancelled"), Not(HasSubstr("goes")))));
}

TEST_F(SlurmExecutorTest, APointThatWasStoppedGoesOnUnlessSlurmSaysWhy) {
  SlurmExecutor slurm = executor();
  send(slurm, tasks(2));
  says("queue", line(101, 0, "FAILED", "NonZeroExitCode") + line(101, 1, "TIMEOUT", "TimeLimit"));
  leave(101, 0, "exit", "130\n");
  leave(101, 1, "exit", "130\n");
  EXPECT_THAT(poll(slurm, 20), ElementsAre(EndsWith("(goes on)"), Not(EndsWith("(goes on)"))));
}

TEST_F(SlurmExecutorTest, SaysOnceWhatPointsWaitForThatMayNeverCome) {
  SlurmExecutor slurm = executor();
  send(slurm, tasks(4));
  says("queue", line(101, 0, "RUNNING") + line(101, 1, "PENDING", "Priority") +
                    line(101, 2, "PENDING", "PartitionTimeLimit") +
                    line(101, 3, "PENDING", "PartitionTimeLimit"));
  testing::internal::CaptureStderr();
  poll(slurm, 20);
  poll(slurm, 20);
  says("queue", line(101, 2, "REQUEUE_HOLD", "job_requeued_in_held_state") +
                    line(101, 3, "PENDING", "JobHeldUser"));
  poll(slurm, 20);
  const std::string warned = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warned, AllOf(HasSubstr("PartitionTimeLimit"), HasSubstr("REQUEUE_HOLD"),
                            HasSubstr("JobHeldUser"), Not(HasSubstr("Priority"))));
  EXPECT_EQ(std::ranges::count(warned, '\n'), 3);
}

TEST_F(SlurmExecutorTest, TheUsersOwnDefaultsDoNotReachQuestions) {
  for (const char* name : {"sbatch", "squeue", "scancel"}) {
    folder_.write(fmt::format("bin/{}", name),
                  fmt::format("#!/bin/sh\ncd {}\necho {} $SQUEUE_PARTITION $SCANCEL_STATE "
                              "$SBATCH_ACCOUNT $SBATCH_ARRAY_INX >> calls\n{}\n",
                              folder_.path().string(), name, body_of(name)));
  }
  const std::vector<const char*> names = {"SQUEUE_PARTITION", "SCANCEL_STATE", "SBATCH_ACCOUNT",
                                          "SBATCH_ARRAY_INX"};
  for (const char* name : names) ::setenv(name, name, 1);
  SlurmExecutor slurm = executor();
  send(slurm, tasks(1));
  poll(slurm, 20);
  slurm.stop();
  for (const char* name : names) ::unsetenv(name);
  std::ifstream in(folder_ / "calls");
  const std::string said(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(said,
              AllOf(HasSubstr("sbatch SBATCH_ACCOUNT\n"), HasSubstr("squeue SBATCH_ACCOUNT\n"),
                    HasSubstr("scancel SBATCH_ACCOUNT\n")));
}

TEST_F(SlurmExecutorTest, AShortOutageEndsNoSweep) {
  SlurmExecutor slurm = executor();
  for (const char* reason :
       {"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
        "failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
        "Job "
        "violates accounting/QOS policy (job submit limit, user's size and/or time limits)"}) {
    says("sbatch.fails", reason);
    slurm.start(std::vector{task("p")});
    testing::internal::CaptureStderr();
    EXPECT_THAT(poll(slurm, 60), ElementsAre());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it is tried again"));
    EXPECT_EQ(slurm.num_running(), 1U);
    fs::remove(folder_ / "sbatch.fails");
    calls("sbatch");
    poll(slurm);
    EXPECT_EQ(calls("sbatch"), "");
    poll(slurm, 60);
    EXPECT_THAT(calls("sbatch"), HasSubstr("--array=0-0 "));
    leave(array(101).empty() ? 102 : 101, 0, "exit", "0\n");
    poll(slurm);
    fs::remove(folder_ / "submitted");
  }
}

TEST_F(SlurmExecutorTest, ADamagedArrayIsNamed) {
  folder_.write("slurm/atoll-1/points", "../..\n");
  EXPECT_THAT(message_of([&] { executor(); }),
              AllOf(HasSubstr("atoll-1/points"), HasSubstr("delete the folder")));
}

}  // namespace
}  // namespace atl::sweep
