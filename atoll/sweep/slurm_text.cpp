#include "atoll/sweep/slurm_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/run/run_folder.h"
#include "atoll/sweep/point_executor.h"

namespace atl::sweep {
namespace {

constexpr size_t kMaxIdLength = 100;

// FOLDER, WORKING_FOLDER: words for a shell. The point runs beside the shell, which so hears
// signals while it waits. Slurm tells all processes when time is up (SIGTERM): the shell then only
// waits for the point's end.
constexpr std::string_view kScript = R"bash(#!/bin/bash
# One task of a job array of `atoll scaling sweep`: trains a point and leaves its exit code here.
array={}
task=$SLURM_ARRAY_TASK_ID
cd -- "$array" || exit
# A point is trained once, though its array may have been submitted twice. Slurm itself may start a
# task again.
if ! (set -o noclobber; echo "$SLURM_ARRAY_JOB_ID" > "started-$task") 2> /dev/null; then
  [ "$(< "started-$task")" = "$SLURM_ARRAY_JOB_ID" ] || exit
fi
rm -f "exit-$task"
trap : TERM
. ./commands
(cd -- {} && exec "$@") >> "$log" 2>&1 &
point=$!
trap "trap '' USR1; kill -TERM $point" USR1
wait $point
while kill -0 $point 2> /dev/null; do wait $point; done
wait $point
code=$?
echo $code > "exit-$task.new" && mv -- "exit-$task.new" "exit-$task"
exit $code
)bash";

/// The lines of a text, without empty ones.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The first fields of a line; the last one takes what is left. Fewer when there are fewer.
std::vector<std::string_view> fields_of(std::string_view line, size_t count) {
  std::vector<std::string_view> fields;
  while (fields.size() + 1 < count) {
    const size_t bar = line.find('|');
    if (bar == std::string_view::npos) break;
    fields.push_back(line.substr(0, bar));
    line.remove_prefix(bar + 1);
  }
  fields.push_back(line);
  return fields;
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

[[noreturn]] void refuse_line(const char* command, const char* format, std::string_view line) {
  constexpr size_t kShown = 200;
  throw InputError(
      fmt::format("{} printed '{}', which is not {}", command, line.substr(0, kShown), format));
}

bool is_one_of(std::string_view state, std::initializer_list<std::string_view> states) {
  return std::ranges::find(states, state) != states.end();
}

/// What a person can do about an end that has a name; nothing for ends that are the point's own.
std::optional<std::string> named_end(std::string_view state) {
  if (state == "TIMEOUT") return "its time limit was reached; give it more with slurm.time";
  if (state == "OUT_OF_MEMORY") return "it ran out of memory; give it more with slurm.mem";
  if (state == "NODE_FAIL") return "its node failed";
  if (state == "BOOT_FAIL") return "its node could not be started";
  if (state == "CANCELLED") return "it was cancelled";
  if (state == "PREEMPTED") return "another job took its place";
  if (state == "DEADLINE") return "its deadline was reached";
  if (state == "REVOKED") return "another cluster took it";
  return std::nullopt;
}

std::string shown(const SlurmTask& task) {
  const bool has_reason = !task.reason.empty() && task.reason != "None";
  return has_reason ? fmt::format("{}, {}", task.state, task.reason) : task.state;
}

}  // namespace

std::optional<int64_t> parse_whole(std::string_view text) {
  return text.starts_with('-') ? std::nullopt : number_in<int64_t>(text);
}

std::string array_script(const std::filesystem::path& folder,
                         const std::filesystem::path& working_folder) {
  return fmt::format(kScript, run::shell_quoted(folder.string()),
                     run::shell_quoted(working_folder.string()));
}

std::string array_commands(std::span<const TaskCommand> tasks) {
  std::string text = "# What each task does; read by script.\ncase $task in\n";
  for (size_t i = 0; i < tasks.size(); ++i) {
    text += fmt::format("{}) log={}; set --", i, run::shell_quoted(tasks[i].log.string()));
    for (const std::string& word : tasks[i].words) text += " " + run::shell_quoted(word);
    text += " ;;\n";
  }
  return text + "esac\n";
}

std::vector<std::string> parse_array_points(std::string_view text, const std::string& where) {
  std::vector<std::string> points;
  for (const std::string_view line : lines_of(text)) {
    const bool is_id =
        line.size() <= kMaxIdLength && std::ranges::all_of(line, [](unsigned char c) {
          return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        });
    if (!is_id || points.size() == static_cast<size_t>(kMaxArrayTasks)) {
      throw InputError(fmt::format(
          "{}: line {} is not the id of a point; delete the folder '{}' "
          "when no job of it runs any more",
          where, points.size() + 1, std::filesystem::path(where).parent_path().string()));
    }
    points.emplace_back(line);
  }
  if (points.empty()) throw InputError(fmt::format("{}: has no points", where));
  return points;
}

std::vector<std::string> sbatch_arguments(const SlurmOptions& options, const std::string& name,
                                          size_t num_tasks, int64_t cpus, int64_t max_running,
                                          const std::filesystem::path& script) {
  // Points resume, so a task whose node failed may simply be started again. The last word of an
  // option counts: the user's behind that one, and behind the user's those that have to hold.
  std::vector<std::string> words = {"--requeue"};
  words.insert(words.end(), options.extra.begin(), options.extra.end());
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("--{}={}", option, value));
  };
  add("partition", options.partition);
  add("time", options.time);
  add("mem", options.mem);
  add("cpus-per-task", fmt::to_string(cpus));
  add("job-name", name);
  add("array", fmt::format("0-{}{}", num_tasks - 1,
                           max_running > 0 ? fmt::format("%{}", max_running) : std::string()));
  // What a point prints goes to its own folder: Slurm would read % and backslashes in the path.
  add("output", "/dev/null");
  add("chdir", "/");
  words.emplace_back("--parsable");
  words.push_back(script.string());
  return words;
}

bool is_in_the_way(std::string_view variable) {
  return variable.starts_with("SQUEUE_") || variable.starts_with("SCANCEL_") ||
         variable.starts_with("SACCT_") || variable.starts_with("SCONTROL_") ||
         is_one_of(variable, {"SLURM_CLUSTERS", "SBATCH_CLUSTERS", "SBATCH_WAIT", "SBATCH_ERROR",
                              "SBATCH_ARRAY_INX"});
}

bool may_pass(std::string_view error) {
  constexpr std::string_view kSigns[] = {"Unable to contact slurm",
                                         "Socket timed out",
                                         "onnection refused",
                                         "onnection timed out",
                                         "onnect failure",
                                         "Zero Bytes",
                                         "temporarily un",
                                         "did not end within",
                                         "submit limit",
                                         "MaxSubmit",
                                         "GrpSubmit",
                                         "MaxJobCount",
                                         "Message receive failure",
                                         "in standby mode",
                                         "Unexpected message"};
  return std::ranges::any_of(
      kSigns, [&](std::string_view sign) { return error.find(sign) != std::string_view::npos; });
}

std::optional<int64_t> parse_job_id(std::string_view text) {
  const std::string_view line = trimmed(text);
  const std::optional<int64_t> job = parse_whole(line.substr(0, line.find(';')));
  return job && *job > 0 ? job : std::nullopt;
}

SlurmLimits parse_limits(std::string_view text) {
  SlurmLimits limits;
  bool has_size = false;
  for (const std::string_view line : lines_of(text)) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, equals));
    const std::string_view value = trimmed(line.substr(equals + 1));
    if (key == "MaxArraySize") {
      const std::optional<int64_t> size = parse_whole(value);
      if (!size) refuse_line("scontrol show config", "MaxArraySize = NUMBER", line);
      limits.max_array_size = *size;
      has_size = true;
    } else if (key == "AccountingStorageType") {
      limits.has_accounting = !value.empty() && value != "(null)" && !value.ends_with("/none");
    }
  }
  if (!has_size) throw InputError("scontrol show config does not say MaxArraySize");
  return limits;
}

std::vector<SlurmTask> parse_queue(std::string_view text) {
  std::vector<SlurmTask> tasks;
  for (const std::string_view line : lines_of(text)) {
    const std::vector<std::string_view> fields = fields_of(line, 5);
    const auto job = fields.size() == 5 ? parse_whole(fields[1]) : std::nullopt;
    const auto index = fields.size() < 5    ? std::nullopt
                       : fields[2] == "N/A" ? std::optional(kOtherTasks)
                                            : parse_whole(fields[2]);
    if (!job || !index || fields[3].empty()) refuse_line("squeue", kQueueFormat, line);
    tasks.push_back({std::string(fields[0]), *job, *index, std::string(fields[3]),
                     std::string(trimmed(fields[4]))});
  }
  return tasks;
}

std::vector<SlurmTask> parse_accounting(std::string_view text) {
  std::vector<SlurmTask> tasks;
  for (const std::string_view line : lines_of(text)) {
    const std::vector<std::string_view> fields = fields_of(line, 3);
    if (fields.size() != 3) refuse_line("sacct", kAccountingFormat, line);
    const size_t underscore = fields[0].find('_');
    if (underscore == std::string_view::npos) continue;
    const auto job = parse_whole(fields[0].substr(0, underscore));
    const auto index = parse_whole(fields[0].substr(underscore + 1));
    if (!job || !index) continue;
    // "CANCELLED by 1000".
    const std::string_view state = fields[1].substr(0, fields[1].find(' '));
    const std::string_view exit_code = trimmed(fields[2]);
    const bool is_usual = exit_code.empty() || exit_code == "0:0";
    tasks.push_back({"", *job, *index, std::string(state),
                     is_usual ? std::string() : fmt::format("exit code {}", exit_code)});
  }
  return tasks;
}

bool waits_for_people(const SlurmTask& task) {
  if (task.state == "REQUEUE_HOLD" || task.state == "SPECIAL_EXIT") return true;
  return task.state == "PENDING" && !task.reason.empty() &&
         !is_one_of(task.reason, {"None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime",
                                  "Cleaning", "Dependency", "Prolog", "Licenses", "Reservation"});
}

bool is_over(const SlurmTask& task) {
  return is_one_of(task.state, {"COMPLETED", "FAILED"}) || named_end(task.state);
}

bool seems_over(const TaskEvidence& evidence) {
  if (!evidence.was_asked) return false;
  if (!evidence.task || is_over(*evidence.task)) return true;
  // One that Slurm starts again has the exit code of the time before until it does. While it is
  // COMPLETING, Slurm may still do so.
  return evidence.exit_code && evidence.task->state == "RUNNING";
}

std::optional<std::string> end_of_task(const TaskEvidence& evidence) {
  if (evidence.exit_code == 0) return "exit code 0";
  if (!seems_over(evidence)) return std::nullopt;
  const std::optional<std::string> named =
      evidence.task ? named_end(evidence.task->state) : std::nullopt;
  if (named) return fmt::format("{} ({})", *named, shown(*evidence.task));
  const bool is_certain = !evidence.task || is_over(*evidence.task);
  if (evidence.exit_code && (is_certain || evidence.is_overdue)) {
    return fmt::format("exit code {}", *evidence.exit_code);
  }
  // Files of other machines may be late.
  if (!evidence.is_overdue) return std::nullopt;
  if (!evidence.task) return "Slurm no longer knows it, and it left no exit code";
  return fmt::format(
      "it left no exit code, and Slurm says {}: do the nodes see the sweep's folder?",
      shown(*evidence.task));
}

bool was_stopped(const TaskEvidence& evidence) {
  const bool has_name = evidence.task && named_end(evidence.task->state);
  return evidence.exit_code == kStoppedStatus && !has_name;
}

std::vector<int64_t> share_running(std::span<const int64_t> unfinished, int64_t max_running) {
  std::vector<int64_t> shares;
  for (const int64_t count : unfinished) {
    shares.push_back(std::min(count, max_running));
    max_running -= shares.back();
  }
  return shares;
}

}  // namespace atl::sweep
