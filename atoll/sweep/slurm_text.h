#pragma once
// What is written for Slurm and what its commands print: the pure half of slurm_executor.h. An
// array of points is a folder with these files; a task is a point's place in it, from 0.
//
//   points      the ids of its points, a line for each task
//   commands    what a task is to do, for bash
//   script      what sbatch is given
//   job         the array's job id, once it is known
//   started-K   written by task K: the job id it runs under
//   exit-K      written by task K at its end: the exit code of its point
//   over-K      written by the sweep: it has reported how task K ended
//   stopped     written by the sweep: all tasks were asked to end
//
// LibTorch-free.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/sweep/slurm_options.h"

namespace atl::sweep {

constexpr int64_t kMaxArrayTasks = 10'000;           // Of one array, whatever Slurm allows.
constexpr size_t kMaxSlurmOutput = size_t{1} << 24;  // Bytes that a command may print.

/// A number of 0 or more, of digits alone.
std::optional<int64_t> parse_whole(std::string_view text);

/// A point's command, and the file that its output is added to.
struct TaskCommand {
  std::vector<std::string> words;
  std::filesystem::path log;
};

/// The script of an array in `folder`; its points run in `working_folder`. A task that finds that
/// another job has already run it ends without a word: an array that was submitted twice does no
/// harm. SIGUSR1 asks the point to stop and keep its state.
std::string array_script(const std::filesystem::path& folder,
                         const std::filesystem::path& working_folder);
std::string array_commands(std::span<const TaskCommand> tasks);

/// Reads `points`. Throws InputError: an id not of letters and digits, none, or too many.
std::vector<std::string> parse_array_points(std::string_view text, const std::string& where);

/// What sbatch is called with, from its first argument on. `cpus` are those of a task;
/// `max_running` 0: any number at a time.
std::vector<std::string> sbatch_arguments(const SlurmOptions& options, const std::string& name,
                                          size_t num_tasks, int64_t cpus, int64_t max_running,
                                          const std::filesystem::path& script);

/// Whether an environment variable would change what the sweep asks of Slurm: SQUEUE_PARTITION
/// hides jobs, SBATCH_WAIT makes sbatch wait. Defaults for jobs (SBATCH_ACCOUNT, ...) are left.
bool is_in_the_way(std::string_view variable);

/// Whether what sbatch says may pass by itself: the controller is away, or a limit is reached for
/// now. Else it refuses the job for what it is.
bool may_pass(std::string_view error);

/// The job id in what `sbatch --parsable` prints: "12" or "12;cluster". Nothing when it is neither.
std::optional<int64_t> parse_job_id(std::string_view text);

struct SlurmLimits {
  int64_t max_array_size = 0;  // One more than the largest task number; 0: no arrays.
  bool has_accounting = false;
};
/// Reads what `scontrol show config` prints. Throws InputError when it has no MaxArraySize.
SlurmLimits parse_limits(std::string_view text);

/// In place of a task's number: all tasks of the array that stand nowhere else. Slurm says so when
/// tasks were cancelled before any of them began.
constexpr int64_t kOtherTasks = -1;

/// What Slurm says of one task.
struct SlurmTask {
  std::string array;   // Its job name; sacct's lines leave it empty.
  int64_t job = 0;     // Of the array.
  int64_t index = 0;   // Or kOtherTasks.
  std::string state;   // "PENDING", "TIMEOUT", ...
  std::string reason;  // Why it waits, or how it ended; may be empty or "None".
};

constexpr const char* kQueueFormat = "%j|%F|%K|%T|%r";
/// Reads squeue's lines in kQueueFormat. Throws InputError quoting the line that is none.
std::vector<SlurmTask> parse_queue(std::string_view text);

constexpr const char* kAccountingFormat = "JobID,State,ExitCode";
/// Reads sacct's lines in kAccountingFormat, --parsable2. Tasks that have not begun stand there
/// together, "12_[3-9]", and are left out, as are jobs that are no arrays.
std::vector<SlurmTask> parse_accounting(std::string_view text);

/// What is known of a task that has not been reported yet.
struct TaskEvidence {
  std::optional<int64_t> exit_code;  // Its point's, from exit-K.
  std::optional<SlurmTask> task;     // What Slurm says; nothing: it does not know the task.
  bool was_asked = false;            // Slurm was asked after exit_code was seen.
  bool is_overdue = false;           // Nothing new for long, though it seems to be over.
};

/// Whether the task waits for something that does not come by itself: a limit, a partition's time,
/// a hold. Its turn and free nodes do.
bool waits_for_people(const SlurmTask& task);

/// Whether Slurm takes the task for over.
bool is_over(const SlurmTask& task);
/// Whether the task seems to be over; with time nothing more will be heard of it.
bool seems_over(const TaskEvidence& evidence);
/// How the task ended, as a sentence; nothing while it is on its way or that is not known yet.
std::optional<std::string> end_of_task(const TaskEvidence& evidence);

/// Whether the task's point ended as one that was asked to, for no reason that Slurm has a name
/// for.
bool was_stopped(const TaskEvidence& evidence);

/// How many tasks of each array may run at a time, so that all arrays together run at most
/// `max_running`; those that come first have precedence.
std::vector<int64_t> share_running(std::span<const int64_t> unfinished, int64_t max_running);

}  // namespace atl::sweep
