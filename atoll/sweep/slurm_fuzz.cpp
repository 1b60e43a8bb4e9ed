// What Slurm's commands and the files of an array say: read or refused with an InputError; numbers
// are in their ranges, and what is made of them for a shell is one command for each task.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/sweep/slurm_text.h"

namespace atl::sweep {
namespace {

void try_read(const auto& action) {
  try {
    action();
  } catch (const InputError&) {
  }
}

void check_tasks(const std::vector<SlurmTask>& tasks) {
  for (const SlurmTask& task : tasks) {
    ATOLL_CHECK(task.job >= 0 && task.index >= kOtherTasks);
    const TaskEvidence evidence{.exit_code = 1, .task = task, .was_asked = true};
    ATOLL_CHECK(!end_of_task(evidence) || seems_over(evidence));
  }
}

void try_all(const std::string& text) {
  try_read([&] { check_tasks(parse_queue(text)); });
  try_read([&] { check_tasks(parse_accounting(text)); });
  try_read([&] { ATOLL_CHECK(parse_limits(text).max_array_size >= 0); });
  try_read([&] { ATOLL_CHECK(!parse_array_points(text, "fuzz").empty()); });
  const auto job = parse_job_id(text);
  ATOLL_CHECK(!job || *job > 0);
  const std::string commands = array_commands(std::vector<TaskCommand>{{{"x"}, text}});
  ATOLL_CHECK(commands.ends_with("esac\n"));
}

}  // namespace
}  // namespace atl::sweep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  atl::sweep::try_all(input);
  atl::sweep::try_all("a|1|" + input);
  atl::sweep::try_all("1_" + input);
  atl::sweep::try_all("MaxArraySize = " + input);
  return 0;
}
