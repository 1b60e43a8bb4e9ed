#include "atoll/cli/torch_answer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/run/child_process.h"

namespace atl::cli {

nlohmann::json torch_answer(const std::vector<std::string>& words,
                            const std::function<void()>& waits) {
  std::vector<std::string> command = {sibling_program("atoll-torch")};
  command.insert(command.end(), words.begin(), words.end());
  const std::filesystem::path log =
      std::filesystem::temp_directory_path() / fmt::format("atoll-measure-{}.log", ::getpid());
  run::ChildProcess child(command, log);
  std::string answer;
  std::optional<int> status;
  while (!status) {
    throw_if_interrupted();
    ::poll(nullptr, 0, 50);
    waits();
    status = child.poll_exit();
    for (const std::string& line : child.read_lines()) answer += line;
  }
  std::string said = run::last_lines(log, 5);
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  nlohmann::json json = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (*status == 0 && json.is_object()) return json;
  if (said.empty()) {
    said = child.was_killed() && *status == 128 + 9
               ? "the system ended it, most likely because memory ran out; measure a smaller model"
               : fmt::format("it ended with status {} and said nothing", *status);
  }
  const std::string what = "this machine cannot be measured: " + said;
  if (*status == 2) throw UsageError(what);
  throw InputError(what);
}

}  // namespace atl::cli
