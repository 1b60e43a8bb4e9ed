#include "atoll/run/process_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/number.h"

namespace atl::run {
namespace {

constexpr int64_t kMostCpus = 1 << 20;
/// Ports that Slurm's steps meet at: below those that systems give away by themselves.
constexpr int64_t kFirstPort = 20000;
constexpr int64_t kNumPorts = 10000;

const std::string* find(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : &found->second;
}

/// Variables of one starter.
class Variables {
 public:
  Variables(const Environment& environment, std::string starter)
      : environment_(environment), starter_(std::move(starter)) {}

  const std::string& text(std::string_view name) const {
    const std::string* const value = find(environment_, name);
    if (value == nullptr || value->empty()) {
      fail(fmt::format("{} is not set", name));
    }
    return *value;
  }

  int64_t number(std::string_view name, int64_t least, int64_t most) const {
    const std::string& value = text(name);
    const auto number = number_in<int64_t>(value);
    if (!number || *number < least || *number > most) {
      fail(fmt::format("{} = '{}' is no whole number from {} to {}", name, value, least, most));
    }
    return *number;
  }

  std::optional<int64_t> maybe(std::string_view name, int64_t least, int64_t most) const {
    const std::string* const value = find(environment_, name);
    if (value == nullptr || value->empty()) return std::nullopt;
    return number(name, least, most);
  }

  /// Rank and size; a rank that the size does not hold is refused.
  ProcessPlace place(std::string_view rank, std::string_view size) const {
    ProcessPlace place{.size = number(size, 1, kMostProcesses)};
    place.rank = number(rank, 0, kMostProcesses);
    if (place.rank >= place.size) {
      fail(fmt::format("{} = {} and {} = {}: processes are numbered from 0", rank, place.rank, size,
                       place.size));
    }
    return place;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(
        fmt::format("{}: {}; --processes-per-island 1 makes this process an island on its own",
                    starter_, what));
  }

 private:
  const Environment& environment_;
  const std::string starter_;
};

std::optional<ProcessPlace> place_by_torchrun(const Environment& environment) {
  const Variables variables(environment, "the environment is torchrun's");
  ProcessPlace place = variables.place("RANK", "WORLD_SIZE");
  if (place.size == 1) return std::nullopt;
  place.address = variables.text("MASTER_ADDR");
  const bool is_here = place.address == "127.0.0.1" || place.address == "localhost";
  place.local_size =
      variables.maybe("LOCAL_WORLD_SIZE", 1, place.size).value_or(is_here ? place.size : 1);
  place.local_rank =
      variables.maybe("LOCAL_RANK", 0, place.size - 1).value_or(is_here ? place.rank : 0);
  place.port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535));
  // Then torchrun's agent is there, also over several starts of the processes.
  const std::string* const agent = find(environment, "TORCHELASTIC_USE_AGENT_STORE");
  place.is_kept_open = agent != nullptr && (*agent == "True" || *agent == "1");
  if (const auto count = variables.maybe("TORCHELASTIC_RESTART_COUNT", 0, INT64_MAX)) {
    place.attempt = fmt::format("{}", *count);
  }
  if (const std::string* const key = find(environment, kKeyVariable)) place.attempt += "/" + *key;
  if (place.leads()) {
    const auto listener = variables.maybe(kListenerVariable, 0, INT32_MAX);
    place.listener = static_cast<int>(listener.value_or(-1));
  }
  return place;
}

/// "4" of "4(x2),3": how many tasks the step has on its first machine.
int64_t first_count(std::string_view counts) {
  return number_in<int64_t>(counts.substr(0, counts.find_first_of("(,"))).value_or(1);
}

std::optional<ProcessPlace> place_by_slurm(const Environment& environment) {
  const Variables variables(environment, "the environment is that of Slurm's srun");
  ProcessPlace place = variables.place("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (place.size == 1) return std::nullopt;
  place.local_rank = variables.number("SLURM_LOCALID", 0, place.size - 1);
  if (const std::string* const counts = find(environment, "SLURM_STEP_TASKS_PER_NODE")) {
    place.local_size = std::clamp<int64_t>(first_count(*counts), 1, place.size);
  }
  place.num_cpus = variables.maybe("SLURM_CPUS_PER_TASK", 1, kMostCpus).value_or(0);
  const bool is_here = variables.maybe("SLURM_STEP_NUM_NODES", 1, kMostProcesses) == 1;
  const std::string* const address = find(environment, "MASTER_ADDR");
  if (address != nullptr && !address->empty()) {
    place.address = *address;
  } else {
    place.address = is_here ? "127.0.0.1" : first_host(variables.text("SLURM_STEP_NODELIST"));
  }
  const int64_t job = variables.number("SLURM_JOB_ID", 0, INT32_MAX);
  const int64_t step = variables.number("SLURM_STEP_ID", 0, INT32_MAX);
  // Steps of one job follow each other, jobs run beside each other: neighbours shall not meet.
  const int64_t usual = kFirstPort + (job * 17 + step) % kNumPorts;
  place.port = static_cast<uint16_t>(variables.maybe("MASTER_PORT", 1, 65535).value_or(usual));
  place.attempt = fmt::format("{}.{}", job, step);
  return place;
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view word = *entry;
    const size_t end = word.find('=');
    if (end != std::string_view::npos)
      environment.emplace(word.substr(0, end), word.substr(end + 1));
  }
  return environment;
}

std::optional<ProcessPlace> process_place(const Environment& environment, int64_t asked) {
  if (asked == 1) return std::nullopt;
  std::optional<ProcessPlace> place;
  const bool has_rank = environment.contains("RANK");
  const bool has_size = environment.contains("WORLD_SIZE");
  const bool is_step = environment.contains("SLURM_STEP_NUM_TASKS");
  // Within srun one of them alone is somebody else's.
  if ((has_rank && has_size) || ((has_rank || has_size) && !is_step)) {
    place = place_by_torchrun(environment);
  } else if (is_step) {
    place = place_by_slurm(environment);
  }
  if (place && asked > 0 && place->size != asked) {
    throw UsageError(
        fmt::format("--processes-per-island {}: this one was started as one of {}; leave the "
                    "option out, or start as many",
                    asked, place->size));
  }
  return place;
}

std::string first_host(std::string_view list) {
  const auto fail = [&] {
    throw UsageError(fmt::format(
        "SLURM_STEP_NODELIST = '{}' is no list of hosts; set MASTER_ADDR, MASTER_PORT, RANK, "
        "WORLD_SIZE and LOCAL_RANK instead",
        list));
  };
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t end = list.find(']', at);
    if (end == std::string_view::npos) fail();
    const std::string_view first = list.substr(at + 1, list.find_first_of(",-]", at) - at - 1);
    if (first.empty()) fail();
    host += first;
    at = end;
  }
  if (host.empty() || host.find(']') != std::string::npos) fail();
  return host;
}

}  // namespace atl::run
