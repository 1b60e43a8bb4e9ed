#include "atoll/sweep/slurm_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <string_view>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/run/child_process.h"
#include "atoll/run/run_folder.h"
#include "atoll/sweep/slurm_text.h"

namespace atl::sweep {
namespace {

constexpr std::chrono::seconds kMaxSeconds{120};  // Longer than Slurm's own patience.
constexpr int kPollMs = 100;
constexpr std::chrono::milliseconds kExitPoll{5};
constexpr size_t kShownLines = 5;  // Of stderr, in a message.

/// The program's path; empty when PATH does not lead to it.
std::filesystem::path find_program(const std::string& name) {
  for (const std::filesystem::path& folder : folders_of_path()) {
    const auto file = folder / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

}  // namespace

SlurmCommands::SlurmCommands(std::filesystem::path folder, const Clock& clock)
    : folder_(std::move(folder)), clock_(clock) {
  std::vector<std::string> missing;
  for (const char* name : {"sbatch", "squeue", "scancel", "scontrol"}) {
    if (find_program(name).empty()) missing.emplace_back(name);
  }
  if (missing.empty()) return;
  throw InputError(
      fmt::format("cannot use Slurm: {} not found on PATH; start the sweep on a machine that can "
                  "submit jobs (Debian's package slurm-client), or give --local to train on this "
                  "machine though the file has [slurm]",
                  fmt::join(missing, ", ")));
}

std::string SlurmCommands::run(const std::string& program,
                               const std::vector<std::string>& arguments) const {
  std::vector<std::string> words;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (is_in_the_way(name)) words.insert(words.end(), {"-u", std::string(name)});
  }
  if (!words.empty()) words.insert(words.begin(), find_program("env").string());
  words.push_back(find_program(program).string());
  if (words.front().empty() || words.back().empty()) {
    throw InputError(fmt::format("{} not found on PATH", program));
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string shown = program;
  for (const std::string& word : arguments) shown += " " + run::shell_quoted(word);

  const Time begin = clock_.now();
  run::ChildProcess process(words, folder_ / "stderr");
  std::string output;
  const auto read = [&] {
    for (const std::string& line : process.read_lines()) output += line + "\n";
    if (output.size() <= kMaxSlurmOutput) return;
    throw InputError(fmt::format("'{}' printed over {} bytes", shown, kMaxSlurmOutput));
  };
  while (!process.poll_exit()) {
    if (clock_.now() - begin > kMaxSeconds) {
      throw InputError(fmt::format("'{}' did not end within {} s", shown, kMaxSeconds.count()));
    }
    pollfd ready{process.output(), POLLIN, 0};
    // A closed stdout, or one that never says a whole line, must not make this spin.
    if (process.output() < 0) {
      std::this_thread::sleep_for(kExitPoll);
    } else {
      ::poll(&ready, 1, kPollMs);
    }
    read();
  }
  read();
  if (process.poll_exit() == 0) return output;
  throw InputError(fmt::format("'{}' ended with exit code {}: {}", shown, *process.poll_exit(),
                               run::last_lines(process.log(), kShownLines)));
}

}  // namespace atl::sweep
