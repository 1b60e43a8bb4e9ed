#include "atoll/sweep/slurm_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "atoll/base/file.h"
#include "atoll/run/run_folder.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SlurmOptions options_of(const std::string& text) {
  return read_slurm_options(parse_toml(text, "S.toml"), "S.toml");
}

std::string refusal_of(const std::string& text) {
  return message_of<UsageError>([&] { options_of(text); });
}

TEST(SlurmOptionsTest, AreReadFromTheirTable) {
  const SlurmOptions options = options_of(R"(
[slurm]
partition = "long"
time = "2:00:00"
mem = "4G"
cpus_per_task = 3
max_running = 8
max_submitted = 100
poll_seconds = 2.5
extra = ["--account=x y", "--mem-per-cpu=2G", "-Ghalf"]
)");
  EXPECT_EQ(options.partition, "long");
  EXPECT_EQ(options.time, "2:00:00");
  EXPECT_EQ(options.mem, "4G");
  EXPECT_EQ(options.cpus_per_task, 3);
  EXPECT_EQ(options.max_running, 8);
  EXPECT_EQ(options.max_submitted, 100);
  EXPECT_EQ(options.poll_seconds, 2.5);
  EXPECT_THAT(options.extra, ElementsAre("--account=x y", "--mem-per-cpu=2G", "-Ghalf"));
  EXPECT_TRUE(options_of("").extra.empty());
}

TEST(SlurmOptionsTest, MistakesAreNamed) {
  EXPECT_THAT(refusal_of("[slurm]\npartitoin = 'x'"), HasSubstr("partition"));
  EXPECT_THAT(refusal_of("[slurm]\nmax_running = -1"), HasSubstr("max_running"));
  EXPECT_THAT(refusal_of("[slurm]\nmax_running = 'x'"), HasSubstr("max_running"));
  EXPECT_THAT(refusal_of("[slurm]\npoll_seconds = 0"), HasSubstr("poll_seconds"));
  EXPECT_THAT(refusal_of("[slurm]\ntime = \"1\\u0000\""), HasSubstr("zero byte"));
  EXPECT_THAT(refusal_of("[slrum]\ntime = '1'"), HasSubstr("slrum"));
  EXPECT_THAT(refusal_of("[slurm"), HasSubstr("S.toml"));
  EXPECT_THAT(refusal_of("[slurm]\nextra = '--account=x'"), HasSubstr("list"));
  EXPECT_THAT(refusal_of("[slurm]\nextra = [1]"), HasSubstr("list"));
}

TEST(SlurmOptionsTest, ExtraWordsAreOptionsThatTheSweepDoesNotGive) {
  // A word that is no option would be taken for the script.
  for (const char* word : {"account=x", "", "-", "--", "--=x", "x.sh", "--a\\u0000"}) {
    EXPECT_THAT(refusal_of(fmt::format("[slurm]\nextra = [\"{}\"]", word)),
                testing::ContainsRegex("is no option|zero byte"))
        << word;
  }
  for (const char* word :
       {"--array=0-9", "-a0-9", "--arr=0", "--output=x", "-o", "--parsable", "--wrap=x", "-M2",
        "--clusters=a", "--wait", "--time=1", "--mem=1G", "-Jx", "--chdir=/", "--part=x"}) {
    EXPECT_THAT(refusal_of(fmt::format("[slurm]\nextra = ['{}']", word)), HasSubstr("cannot be"))
        << word;
  }
}

TEST(SlurmTextTest, SbatchGetsOnlyWhatWasAskedFor) {
  EXPECT_THAT(sbatch_arguments({}, "atoll-1", 4, 2, 0, "/s/script"),
              ElementsAre("--requeue", "--cpus-per-task=2", "--job-name=atoll-1", "--array=0-3",
                          "--output=/dev/null", "--chdir=/", "--parsable", "/s/script"));
  const SlurmOptions options{
      .partition = "p", .time = "10", .mem = "1G", .extra = {"--no-requeue", "--account=x"}};
  EXPECT_THAT(sbatch_arguments(options, "n", 1, 1, 3, "/s"),
              ElementsAre("--requeue", "--no-requeue", "--account=x", "--partition=p", "--time=10",
                          "--mem=1G", "--cpus-per-task=1", "--job-name=n", "--array=0-0%3",
                          "--output=/dev/null", "--chdir=/", "--parsable", "/s"));
}

TEST(SlurmTextTest, JobIdsAreWhatParsablePrints) {
  EXPECT_EQ(parse_job_id("12\n"), 12);
  EXPECT_EQ(parse_job_id("12;cluster\n"), 12);
  for (const char* text : {"", "\n", "0", "-3", "+3", "12x", "Submitted batch job 12", "1 2", ";",
                           "99999999999999999999", "12\n13\n"}) {
    EXPECT_EQ(parse_job_id(text), std::nullopt) << text;
  }
}

TEST(SlurmTextTest, LimitsAreReadFromTheConfiguration) {
  const SlurmLimits limits = parse_limits(
      "Configuration data as of 2026-01-01T00:00:00\n"
      "AccountingStorageType   = accounting_storage/none\n"
      "MaxArraySize            = 1001\nClusterName = a=b\n");
  EXPECT_EQ(limits.max_array_size, 1001);
  EXPECT_FALSE(limits.has_accounting);
  EXPECT_TRUE(parse_limits("MaxArraySize=5\nAccountingStorageType=accounting_storage/slurmdbd\n")
                  .has_accounting);
  // As Slurm 23.11 and later say it.
  EXPECT_FALSE(parse_limits("MaxArraySize=5\nAccountingStorageType = (null)\n").has_accounting);
  EXPECT_THAT(message_of([] { parse_limits("ClusterName = x\n"); }), HasSubstr("MaxArraySize"));
  EXPECT_THAT(message_of([] { parse_limits("MaxArraySize = many\n"); }), HasSubstr("many"));
}

TEST(SlurmTextTest, QueueLinesAreTasks) {
  const std::vector<SlurmTask> tasks =
      parse_queue("atoll-1|12|0|RUNNING|None\n\natoll-2|13|7|PENDING|Nodes required | are DOWN\n");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].array, "atoll-1");
  EXPECT_EQ(tasks[0].job, 12);
  EXPECT_EQ(tasks[0].index, 0);
  EXPECT_EQ(tasks[0].state, "RUNNING");
  EXPECT_EQ(tasks[1].index, 7);
  EXPECT_EQ(tasks[1].reason, "Nodes required | are DOWN");
  EXPECT_TRUE(parse_queue("").empty());
  EXPECT_EQ(parse_queue("atoll-1|12|N/A|CANCELLED|Resources\n")[0].index, kOtherTasks);
  for (const char* line :
       {"x", "a|b|c|d|e", "a|1|2||None", "a|-1|2|R|N", "a|1|99999999999999999999|R|N", "||||"}) {
    EXPECT_THAT(message_of([&] { parse_queue(line); }), HasSubstr("squeue printed")) << line;
  }
  // Not the whole of a line of any length.
  EXPECT_LT(message_of([] { parse_queue(std::string(1'000'000, 'x')); }).size(), 500U);
}

TEST(SlurmTextTest, AccountsAreTasksThatBegan) {
  const std::vector<SlurmTask> tasks = parse_accounting(
      "12_0|COMPLETED|0:0\n12_1|FAILED|3:0\n12_2|CANCELLED by 1000|0:15\n12_[3-9]|PENDING|0:0\n"
      "13|RUNNING|0:0\n12_1.batch|FAILED|3:0\n");
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_EQ(tasks[0].reason, "");
  EXPECT_EQ(tasks[1].job, 12);
  EXPECT_EQ(tasks[1].index, 1);
  EXPECT_EQ(tasks[1].reason, "exit code 3:0");
  EXPECT_EQ(tasks[2].state, "CANCELLED");
  EXPECT_THAT(message_of([] { parse_accounting("12_0 COMPLETED\n"); }), HasSubstr("sacct printed"));
}

TEST(SlurmTextTest, PointsAreIds) {
  EXPECT_THAT(parse_array_points("a1\nB2\n", "f/points"), ElementsAre("a1", "B2"));
  for (const std::string& text : {std::string(), std::string("../x\n"), std::string("a b\n"),
                                  std::string(1000, 'a'), std::string("a\0b", 3)}) {
    EXPECT_THAT(message_of([&] { parse_array_points(text, "f/points"); }), HasSubstr("f/points"));
  }
  std::string many;
  for (int64_t i = 0; i <= kMaxArrayTasks; ++i) many += "a\n";
  EXPECT_THAT(message_of([&] { parse_array_points(many, "f/points"); }), HasSubstr("line 10001"));
}

SlurmTask task_in(const std::string& state, const std::string& reason = "None") {
  return {.array = "a", .job = 1, .index = 0, .state = state, .reason = reason};
}

TEST(SlurmTextTest, ATaskIsOverWhenItsPointIsOrSlurmSaysSo) {
  // Its exit code alone tells of success; a failure may have a name that Slurm knows.
  EXPECT_EQ(end_of_task({.exit_code = 0}), "exit code 0");
  EXPECT_EQ(end_of_task({.exit_code = 3}), std::nullopt);
  EXPECT_EQ(end_of_task({.exit_code = 3, .was_asked = true}), "exit code 3");
  EXPECT_EQ(end_of_task({.exit_code = 3, .task = task_in("FAILED"), .was_asked = true}),
            "exit code 3");
  EXPECT_THAT(
      *end_of_task({.exit_code = 143, .task = task_in("TIMEOUT", "TimeLimit"), .was_asked = true}),
      HasSubstr("time limit was reached; give it more with slurm.time (TIMEOUT, TimeLimit)"));
  const std::pair<const char*, const char*> named[] = {
      {"OUT_OF_MEMORY", "out of memory"}, {"NODE_FAIL", "node failed"},
      {"CANCELLED", "cancelled"},         {"PREEMPTED", "another job"},
      {"DEADLINE", "deadline"},           {"BOOT_FAIL", "could not be started"},
  };
  for (const auto& [state, words] : named) {
    const auto end = end_of_task({.task = task_in(state), .was_asked = true});
    ASSERT_TRUE(end) << state;
    EXPECT_THAT(*end, testing::AllOf(HasSubstr(words), HasSubstr(state)));
  }
}

TEST(SlurmTextTest, ATaskThatIsOnItsWayIsNotOver) {
  for (const char* state : {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED",
                            "REQUEUED", "REQUEUE_HOLD", "SOMETHING_NEW"}) {
    EXPECT_EQ(end_of_task({.task = task_in(state), .was_asked = true, .is_overdue = true}),
              std::nullopt)
        << state;
  }
  // Slurm starts it again after its node failed: what it left says nothing.
  EXPECT_EQ(
      end_of_task(
          {.exit_code = 143, .task = task_in("PENDING"), .was_asked = true, .is_overdue = true}),
      std::nullopt);
  // Slurm has not noticed yet.
  TaskEvidence ending{.exit_code = 3, .task = task_in("RUNNING"), .was_asked = true};
  EXPECT_EQ(end_of_task(ending), std::nullopt);
  ending.is_overdue = true;
  EXPECT_EQ(end_of_task(ending), "exit code 3");
  // It cleans up, and may start it again.
  ending.task = task_in("COMPLETING");
  EXPECT_EQ(end_of_task(ending), std::nullopt);
}

TEST(SlurmTextTest, TellsWhatPassesFromWhatIsRefused) {
  for (const char* error : {"Unable to contact slurm controller (connect failure)",
                            "Socket timed out on send/recv operation",
                            "QOSMaxSubmitJobPerUserLimit", "'sbatch' did not end within 120 s"}) {
    EXPECT_TRUE(may_pass(error)) << error;
  }
  for (const char* error :
       {"invalid partition specified: none", "Invalid account or account/partition",
        "unrecognized option '--x'", "Requested node configuration is not available"}) {
    EXPECT_FALSE(may_pass(error)) << error;
  }
}

TEST(SlurmTextTest, WithoutAnExitCodeFilesAreWaitedFor) {
  TaskEvidence failed{.task = task_in("FAILED", "JobLaunchFailure"), .was_asked = true};
  EXPECT_EQ(end_of_task(failed), std::nullopt);
  failed.is_overdue = true;
  EXPECT_THAT(*end_of_task(failed),
              testing::AllOf(HasSubstr("JobLaunchFailure"), HasSubstr("see the sweep's folder")));
  TaskEvidence unknown{.was_asked = true};
  EXPECT_EQ(end_of_task(unknown), std::nullopt);
  unknown.is_overdue = true;
  EXPECT_THAT(*end_of_task(unknown), HasSubstr("no longer knows"));
}

TEST(SlurmTextTest, ArraysShareWhatMayRun) {
  EXPECT_THAT(share_running(std::vector<int64_t>{5, 3}, 4), ElementsAre(4, 0));
  EXPECT_THAT(share_running(std::vector<int64_t>{1, 3, 9}, 6), ElementsAre(1, 3, 2));
  EXPECT_THAT(share_running(std::vector<int64_t>{}, 6), ElementsAre());
}

/// An array's script and commands run as Slurm would run them, in folders with hard names.
class ArrayScriptTest : public testing::Test {
 protected:
  void write(const std::vector<std::string>& words) {
    std::filesystem::create_directories(array_);
    std::filesystem::create_directories(work_);
    write_file_atomically(array_ / "script", array_script(array_, work_));
    const std::vector<TaskCommand> tasks = {{{"false"}, log_}, {words, log_}};
    write_file_atomically(array_ / "commands", array_commands(tasks));
  }

  /// What is printed goes to the log; returns the exit code.
  int run(const std::string& job, const std::string& before = {}, const std::string& behind = {}) {
    const std::string command =
        fmt::format("{} SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_JOB_ID={} bash {} {}", before, job,
                    run::shell_quoted((array_ / "script").string()), behind);
    return WEXITSTATUS(std::system(command.c_str()));
  }

  TestFolder folder_;
  std::string hard_ = " a'b\"c $x `y` %a \\ ;&|\n*";
  std::filesystem::path array_ = folder_ / ("array" + hard_);
  std::filesystem::path work_ = folder_ / ("work" + hard_);
  std::filesystem::path log_ = folder_ / ("log" + hard_);
};

TEST_F(ArrayScriptTest, RunsItsCommandWordForWordAndLeavesTheExitCode) {
  write({"bash", "-c", "pwd; printf '<%s>' \"$@\"; exit 7", "name", hard_, "", "-n", "=x ~"});
  EXPECT_EQ(run("12"), 7);
  EXPECT_EQ(read_file(log_), work_.string() + "\n<" + hard_ + "><><-n><=x ~>");
  EXPECT_EQ(read_file(array_ / "exit-1"), "7\n");
  EXPECT_EQ(read_file(array_ / "started-1"), "12\n");
}

TEST_F(ArrayScriptTest, RunsOncePerArrayUnlessSlurmStartsItAgain) {
  write({"echo", "hello"});
  EXPECT_EQ(run("12"), 0);
  EXPECT_NE(run("13"), 0);  // The same array, submitted twice.
  EXPECT_EQ(read_file(log_), "hello\n");
  EXPECT_EQ(run("12"), 0);
  EXPECT_EQ(read_file(log_), "hello\nhello\n");
  EXPECT_EQ(read_file(array_ / "exit-1"), "0\n");
}

TEST_F(ArrayScriptTest, DoesNothingOnceItsArrayIsGone) {
  write({"echo", "hello"});
  const std::string script = read_file(array_ / "script");
  std::filesystem::remove_all(array_);
  const auto copy = folder_.write("copy", script);
  EXPECT_NE(std::system(("SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_JOB_ID=1 bash " + copy.string() +
                         " 2> /dev/null")
                            .c_str()),
            0);
  EXPECT_FALSE(std::filesystem::exists(log_));
}

TEST_F(ArrayScriptTest, ASignalReachesThePointWhoseOwnExitCodeCounts) {
  // The point says when it may be asked, takes its time, and ends with a code of its own.
  write({"bash", "-c",
         "trap 'sleep 0.2; echo asked; exit 5' TERM; echo ready; "
         "while :; do sleep 0.05; done"});
  const std::string wait = fmt::format("until grep -q ready {} 2> /dev/null; do sleep 0.02; done; ",
                                       run::shell_quoted(log_.string()));
  EXPECT_EQ(run("12", "", "& script=$!; " + wait + "kill -USR1 $script; wait $script"), 5);
  EXPECT_EQ(read_file(log_), "ready\nasked\n");
  EXPECT_EQ(read_file(array_ / "exit-1"), "5\n");
}

}  // namespace
}  // namespace atl::sweep
