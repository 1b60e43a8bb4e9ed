#include "atoll/sweep/slurm_executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/run/child_process.h"

namespace atl::sweep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxWaiting = 100'000;
constexpr int64_t kMaxSubmitted = 10'000;     // Slurm's own usual bound of all jobs.
constexpr std::chrono::seconds kScan{1};      // Between two looks for exit codes.
constexpr std::chrono::seconds kOverdue{30};  // For which files of other machines may be late.
constexpr std::chrono::seconds kRetry{30};    // After Slurm refused an array.

/// The folder of arrays, made if need be.
fs::path created(fs::path folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw InputError(fmt::format("cannot create '{}': {}", folder.string(), error.message()));
  }
  return folder;
}

std::string config_of(const SlurmCommands& commands) {
  try {
    return commands.run("scontrol", {"show", "config"});
  } catch (const InputError& error) {
    throw InputError(
        fmt::format("cannot use Slurm: {}\nstart the sweep where Slurm answers, or give --local to "
                    "train on this machine",
                    error.what()));
  }
}

}  // namespace

SlurmExecutor::SlurmExecutor(fs::path program, fs::path folder, SlurmOptions options,
                             const Clock& clock)
    : program_(std::move(program)),
      folder_(created(fs::absolute(folder))),
      options_(std::move(options)),
      clock_(clock),
      commands_(folder_, clock),
      limits_(parse_limits(config_of(commands_))),
      scanned_(clock.now()),
      asked_(clock.now()),
      retry_(clock.now()) {
  if (limits_.max_array_size == 0) {
    throw InputError("cannot use Slurm: this cluster has no job arrays (MaxArraySize = 0)");
  }
  take_up_arrays();
}

void SlurmExecutor::take_up_arrays() {
  for (const fs::path& folder : SlurmArray::find(folder_)) {
    // Its points are written last: without them it was never sent.
    if (!fs::exists(folder / "points")) {
      fs::remove_all(folder);
    } else {
      arrays_.push_back(SlurmArray::load(folder));
    }
  }
  if (arrays_.empty()) return;
  // A sweep that was killed while it sent an array does not know its job.
  for (const SlurmTask& task : squeue()) {
    for (SlurmArray& array : arrays_) {
      if (!array.job() && array.name() == task.array) array.set_job(task.job);
    }
  }
  std::erase_if(arrays_, [](const SlurmArray& array) {
    const bool is_unknown = !array.job() || array.num_unfinished() == 0;
    if (is_unknown) array.remove();
    return is_unknown;
  });
}

bool SlurmExecutor::adopt(const PointTask& task) {
  for (SlurmArray& array : arrays_) {
    for (SlurmArray::Task& known : array.tasks()) {
      if (known.point != task.id || known.is_over) continue;
      known.is_awaited = true;
      known.log = point_log(task.folder);
      known.cores = task.cores;
      return true;
    }
  }
  return false;
}

int64_t SlurmExecutor::num_unfinished() const {
  int64_t count = 0;
  for (const SlurmArray& array : arrays_) count += array.num_unfinished();
  return count;
}

size_t SlurmExecutor::num_running() const {
  size_t count = waiting_.size();
  for (const SlurmArray& array : arrays_) {
    count +=
        static_cast<size_t>(std::ranges::count_if(array.tasks(), [](const SlurmArray::Task& task) {
          return task.is_awaited && !task.is_over;
        }));
  }
  return count;
}

int64_t SlurmExecutor::num_cores() const {
  int64_t cores = 0;
  for (const SlurmArray& array : arrays_) {
    for (const SlurmArray::Task& task : array.tasks()) {
      const std::optional<SlurmTask>& said = task.evidence.task;
      if (!task.is_over && said && said->state == "RUNNING") cores += task.cores;
    }
  }
  return std::max<int64_t>(cores, 1);
}

size_t SlurmExecutor::start(std::span<const PointTask> tasks) {
  size_t started = 0;
  for (const PointTask& task : tasks) {
    if (waiting_.size() == kMaxWaiting) break;
    ATOLL_CHECK(std::ranges::find(waiting_, task.id, &PointTask::id) == waiting_.end());
    // One that is on its way is not trained twice at a time.
    if (!adopt(task)) waiting_.push_back(task);
    ++started;
  }
  return started;
}

/// How many of those that wait make the next array: they are of one kind, and all that Slurm may
/// have. 0: none for now.
size_t SlurmExecutor::num_sendable(int64_t unfinished) const {
  if (options_.max_running > 0 && unfinished >= options_.max_running) return 0;
  const int64_t may_have = options_.max_submitted > 0 ? options_.max_submitted : kMaxSubmitted;
  const auto room = static_cast<size_t>(std::clamp<int64_t>(
      may_have - unfinished, 0, std::min(limits_.max_array_size, kMaxArrayTasks)));
  size_t count = 0;
  while (count < std::min(room, waiting_.size())) {
    const bool is_alike = options_.cpus_per_task > 0 || waiting_[count].cores == waiting_[0].cores;
    if (!is_alike) break;
    ++count;
  }
  return count;
}

void SlurmExecutor::send_waiting(Time now) {
  while (!waiting_.empty()) {
    const int64_t unfinished = num_unfinished();
    if (now < retry_) return;
    const size_t count = num_sendable(unfinished);
    if (count == 0) return;
    try {
      send(std::span(waiting_).first(count),
           options_.max_running > 0 ? options_.max_running - unfinished : 0);
    } catch (const InputError& error) {
      if (unfinished == 0 && !may_pass(error.what())) throw;
      warn(fmt::format("{}; it is tried again (slurm.max_submitted bounds what is sent)",
                       error.what()));
      retry_ = now + kRetry;
      return;
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  }
}

void SlurmExecutor::send(std::span<const PointTask> tasks, int64_t max_running) {
  std::vector<SlurmArray::Task> places;
  std::vector<TaskCommand> commands;
  for (const PointTask& task : tasks) {
    places.push_back(
        {.point = task.id, .log = point_log(task.folder), .cores = task.cores, .is_awaited = true});
    commands.push_back({point_command(program_, task.folder), places.back().log});
  }
  SlurmArray array = SlurmArray::create(folder_, std::move(places), commands);
  try {
    const int64_t cpus = options_.cpus_per_task > 0 ? options_.cpus_per_task : tasks[0].cores;
    const std::string answer = commands_.run(
        "sbatch",
        sbatch_arguments(options_, array.name(), tasks.size(), cpus, max_running, array.script()));
    const std::optional<int64_t> job = parse_job_id(answer);
    if (!job) throw InputError(fmt::format("sbatch printed '{}', which is no job id", answer));
    array.set_job(*job);
  } catch (const InputError&) {
    // Should Slurm have taken it after all, its tasks find nothing to do.
    array.remove();
    throw;
  }
  running_limits_[array.name()] = max_running;
  arrays_.push_back(std::move(array));
}

std::string SlurmExecutor::names() const {
  std::vector<std::string> names;
  for (const SlurmArray& array : arrays_) names.push_back(array.name());
  return fmt::format("{}", fmt::join(names, ","));
}

std::vector<SlurmTask> SlurmExecutor::squeue() const {
  // Asked by name: an unknown job id would be an error, and finished jobs are soon unknown.
  return parse_queue(commands_.run(
      "squeue", {"--noheader", "--array", "--states=all", fmt::format("--user={}", ::geteuid()),
                 "--name=" + names(), fmt::format("--format={}", kQueueFormat)}));
}

void SlurmExecutor::ask_slurm(Time now) {
  asked_ = now;
  if (is_stopping_) ask_to_stop();
  try {
    Queue queue;
    for (SlurmTask& task : squeue()) queue[{task.array, task.index}] = task;
    const bool is_complete = !limits_.has_accounting || ask_accounting(queue);
    for (SlurmArray& array : arrays_) {
      for (size_t i = 0; i < array.tasks().size(); ++i) {
        TaskEvidence& evidence = array.tasks()[i].evidence;
        auto found = queue.find({array.name(), static_cast<int64_t>(i)});
        if (found == queue.end()) found = queue.find({array.name(), kOtherTasks});
        evidence.task =
            found == queue.end() ? std::nullopt : std::optional<SlurmTask>(found->second);
        evidence.was_asked = true;
      }
    }
    warn_of_waits();
    raise_limits();
    if (is_complete) warning_.clear();
  } catch (const InputError& error) {  // Slurm may be away for a while; the jobs go on.
    warn(fmt::format("{}; Slurm is asked again", error.what()));
  }
}

bool SlurmExecutor::ask_accounting(Queue& queue) {
  std::vector<std::string> jobs;
  for (const SlurmArray& array : arrays_) {
    for (size_t i = 0; i < array.tasks().size(); ++i) {
      if (array.tasks()[i].is_over || queue.contains({array.name(), static_cast<int64_t>(i)}) ||
          queue.contains({array.name(), kOtherTasks})) {
        continue;
      }
      jobs.push_back(fmt::to_string(*array.job()));
      break;
    }
  }
  if (jobs.empty()) return true;
  try {
    const std::string text =
        commands_.run("sacct", {"--noheader", "--parsable2", "--allocations",
                                fmt::format("--jobs={}", fmt::join(jobs, ",")),
                                fmt::format("--format={}", kAccountingFormat)});
    for (const SlurmTask& task : parse_accounting(text)) {
      for (const SlurmArray& array : arrays_) {
        if (array.job() == task.job) queue.try_emplace({array.name(), task.index}, task);
      }
    }
    return true;
  } catch (const InputError& error) {
    warn(fmt::format("{}; how forgotten jobs ended is not known", error.what()));
    return false;
  }
}

void SlurmExecutor::warn_of_waits() {
  for (const SlurmArray& array : arrays_) {
    for (const SlurmArray::Task& task : array.tasks()) {
      const std::optional<SlurmTask>& said = task.evidence.task;
      if (task.is_over || !said || !waits_for_people(*said)) continue;
      const std::string what = said->state == "PENDING"
                                   ? said->reason
                                   : fmt::format("{}, {}", said->state, said->reason);
      if (!waits_.insert(what).second) continue;
      fmt::print(
          stderr,
          "atoll: warning: points wait in Slurm: {} (job {}); they may never begin. scontrol "
          "show job {} says more; Ctrl-C takes them back\n",
          what, said->job, said->job);
    }
  }
}

/// As older arrays come to their ends, later ones may run more of their tasks.
void SlurmExecutor::raise_limits() {
  if (options_.max_running == 0) return;
  std::vector<int64_t> unfinished;
  for (const SlurmArray& array : arrays_) unfinished.push_back(array.num_unfinished());
  const std::vector<int64_t> shares = share_running(unfinished, options_.max_running);
  for (size_t i = 0; i < arrays_.size(); ++i) {
    int64_t& told = running_limits_[arrays_[i].name()];
    if (shares[i] <= told || told >= unfinished[i]) continue;
    commands_.run("scontrol", {"update", fmt::format("JobId={}", *arrays_[i].job()),
                               fmt::format("ArrayTaskThrottle={}", shares[i])});
    told = shares[i];
  }
}

std::vector<PointEnd> SlurmExecutor::poll() {
  std::vector<PointEnd> ends;
  const Time now = clock_.now();
  if (is_stopping_) {
    for (const PointTask& task : waiting_) ends.push_back({task.id, "it was not begun"});
    waiting_.clear();
  }
  send_waiting(now);
  if (arrays_.empty() || now - scanned_ < kScan) return ends;
  scanned_ = now;
  bool must_ask = now - asked_ >= duration_of(options_.poll_seconds);
  for (SlurmArray& array : arrays_) {
    if (!array.read_exit_codes()) continue;
    // Slurm knows better than an exit code why a point that failed did so.
    must_ask = must_ask || std::ranges::any_of(array.tasks(), [](const SlurmArray::Task& task) {
                 return task.evidence.exit_code.value_or(0) != 0 && !task.evidence.was_asked;
               });
  }
  if (must_ask) ask_slurm(now);
  report_over(ends, now);
  return ends;
}

void SlurmExecutor::report_over(std::vector<PointEnd>& ends, Time now) {
  for (SlurmArray& array : arrays_) {
    for (size_t i = 0; i < array.tasks().size(); ++i) {
      SlurmArray::Task& task = array.tasks()[i];
      if (task.is_over) continue;
      if (!seems_over(task.evidence)) {
        task.seems_over_since.reset();
      } else if (!task.seems_over_since) {
        task.seems_over_since = now;
      }
      task.evidence.is_overdue = task.seems_over_since && now - *task.seems_over_since >= kOverdue;
      const std::optional<std::string> end = end_of_task(task.evidence);
      if (!end) continue;
      array.mark_over(i);
      if (!task.is_awaited) continue;
      const std::string said =
          task.evidence.exit_code.value_or(0) != 0 ? run::last_lines(task.log, 1) : std::string();
      ends.push_back({task.point,
                      fmt::format("Slurm job {}_{}: {}{}", *array.job(), i, *end,
                                  said.empty() ? said : ": " + said),
                      array.is_stopped() || was_stopped(task.evidence)});
    }
  }
  std::erase_if(arrays_, [](const SlurmArray& array) {
    if (array.num_unfinished() == 0) array.remove();
    return array.num_unfinished() == 0;
  });
}

void SlurmExecutor::stop() {
  is_stopping_ = true;
  // Before they hear of it: should this process end now, the next one knows why they did.
  for (SlurmArray& array : arrays_) array.mark_stopped();
  ask_to_stop();
  asked_ = clock_.now() - duration_of(options_.poll_seconds);  // Those that waited are gone.
}

/// Again and again: Slurm may have been away, and tasks that were about to begin or suspended hear
/// of it once they run. A task hears it once.
void SlurmExecutor::ask_to_stop() {
  // In this order: a task that begins in between is asked as well.
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--state=PENDING"},
                                              {"--state=RUNNING", "--batch", "--signal=USR1"}}) {
    for (const SlurmArray& array : arrays_) {
      std::vector<std::string> words = how;
      // By name: that a job is over already is then no error.
      words.push_back("--name=" + array.name());
      try {
        commands_.run("scancel", words);
      } catch (const InputError& error) {
        warn(
            fmt::format("{}; points may run on: a second Ctrl-C ends the sweep alone, and it "
                        "takes them over when it is started again",
                        error.what()));
      }
    }
  }
}

void SlurmExecutor::warn(const std::string& what) {
  if (what == warning_) return;
  warning_ = what;
  fmt::print(stderr, "atoll: warning: {}\n", what);
}

}  // namespace atl::sweep
