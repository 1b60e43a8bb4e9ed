#include "atoll/sweep/slurm_options.h"

#include <fmt/format.h>

#include <string_view>

#include "atoll/base/error.h"

namespace atl::sweep {
namespace {

/// Options of sbatch that would break what the sweep relies on: which tasks there are, what sbatch
/// prints, where output goes, and that one cluster is asked. Short forms stand behind long ones.
struct OwnOption {
  const char* name;
  char letter;
  const char* instead;
};
constexpr OwnOption kOwnOptions[] = {
    {"--array", 'a', "use max_running"},
    {"--job-name", 'J', "the sweep finds its jobs by their names"},
    {"--parsable", 0, "the sweep gives it"},
    {"--output", 'o', "a point's output goes to its folder"},
    {"--error", 'e', "a point's output goes to its folder"},
    {"--chdir", 'D', "points run where the sweep was started"},
    {"--wrap", 0, "the sweep has a script of its own"},
    {"--wait", 'W', "the sweep waits by itself"},
    {"--test-only", 0, "nothing would be started"},
    {"--clusters", 'M', "a sweep runs on one cluster"},
    {"--partition", 'p', "use partition"},
    {"--time", 't', "use time"},
    {"--mem", 0, "use mem"},
    {"--cpus-per-task", 'c', "use cpus_per_task"},
};

void check_extra(const std::string& word, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("{}: slurm.extra: '{}' {}", where, word, why));
  };
  const bool is_long = word.starts_with("--") && word.size() > 2 && word[2] != '=';
  const bool is_short = word.size() > 1 && word[0] == '-' && word[1] != '-';
  if (!is_long && !is_short) {
    refuse("is no option of sbatch; give each as one word, like '--account=x'");
  }
  const std::string name = word.substr(0, word.find('='));
  for (const OwnOption& own : kOwnOptions) {
    // sbatch takes unambiguous beginnings of long options too.
    const bool is_own = is_long ? std::string_view(own.name).starts_with(name)
                                : own.letter != 0 && word[1] == own.letter;
    if (is_own) refuse(fmt::format("cannot be given: {}", own.instead));
  }
}

}  // namespace

void SlurmOptions::visit(SettingList& list) {
  list.section("slurm", "a sweep's points as jobs of a cluster");
  list.add("partition", partition, "empty: the cluster's default, as for time and mem");
  list.add("time", time, "limit for a point, as sbatch takes it: 2:00:00");
  list.add("mem", mem, "memory for a point: 4G");
  list.add("cpus_per_task", cpus_per_task, "0: as many as a point keeps busy",
           {.min = 0, .max = 100'000});
  list.add("max_running", max_running, "points at a time; 0: any number",
           {.min = 0, .max = 1'000'000});
  list.add("max_submitted", max_submitted,
           "points that the cluster has at a time, waiting ones among them; 0: all",
           {.min = 0, .max = 1'000'000});
  list.add("poll_seconds", poll_seconds, "between two questions to Slurm",
           {.min = 0.1, .max = 3600});
  list.add("extra", extra, "words for sbatch, each one option: --account=x");
}

SlurmOptions read_slurm_options(const TomlTable& document, const std::string& where) {
  SlurmOptions options;
  SettingList list;
  options.visit(list);
  list.apply(document, where);
  if (options.extra.size() > kMaxExtra) {
    throw UsageError(
        fmt::format("{}: 'slurm.extra' must be a list of at most {} texts", where, kMaxExtra));
  }
  std::vector<std::string> words = options.extra;
  words.insert(words.end(), {options.partition, options.time, options.mem});
  for (const std::string& word : words) {
    if (word.find('\0') == std::string::npos) continue;
    throw UsageError(fmt::format("{}: [slurm] has a text with a zero byte", where));
  }
  for (const std::string& word : options.extra) check_extra(word, where);
  return options;
}

}  // namespace atl::sweep
