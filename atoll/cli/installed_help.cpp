#include "atoll/cli/installed_help.h"

#include <fmt/format.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/command_tree.h"
#include "atoll/cli/completion.h"
#include "atoll/cli/man_page.h"
#include "atoll/cli/version.h"
#include "atoll/run/child_process.h"
#include "atoll/run/config.h"

namespace atl::cli {
namespace {

/// None where the half with LibTorch was not built.
std::vector<Command> torch_commands() {
  const std::string program = sibling_program("atoll-torch");
  if (!std::filesystem::exists(program)) return {};
  run::ChildProcess child({program, "commands"}, "/dev/null");
  std::string said;
  std::optional<int> status;
  while (!status) {
    ::poll(nullptr, 0, 10);
    status = child.poll_exit();
    for (const std::string& line : child.read_lines()) said += line;
  }
  const auto json = nlohmann::json::parse(said, nullptr, /*allow_exceptions=*/false);
  if (*status != 0 || !json.is_object()) {
    throw InputError(fmt::format("'{}' does not tell its commands", program));
  }
  return json.get<Command>().commands;
}

/// `atoll` has only the names of the commands that need LibTorch; the other program tells the rest.
/// A command that has subcommands there but begins here keeps its own options.
Command commands_of_both(const CLI::App& app) {
  Command root = command_of(app);
  for (Command& full : torch_commands()) {
    const auto same = std::ranges::find(root.commands, full.name, &Command::name);
    if (same == root.commands.end()) continue;
    if (same->commands.empty()) {
      *same = std::move(full);
    } else {
      same->commands = std::move(full.commands);
    }
  }
  return root;
}

void print_completion(const CLI::App& app, const std::string& shell) {
  const Command root = commands_of_both(app);
  run::RunConfig config;
  const SettingList settings = config.settings();
  fmt::print("{}", shell == "bash"  ? bash_completion(root, settings)
                   : shell == "zsh" ? zsh_completion(root, settings)
                                    : fish_completion(root, settings));
}

CLI::App* add_hidden(CLI::App& app, const std::string& name, const std::string& description) {
  return app.add_subcommand(name, description)->group("");
}

}  // namespace

void add_installed_help(CLI::App& app) {
  CLI::App* man = add_hidden(app, "man", "Print the man page; `make install` puts it in its place");
  man->footer("Example: atoll man > atoll.1 && man -l atoll.1");
  man->callback([&app] {
    run::RunConfig config;
    fmt::print("{}", man_page(commands_of_both(app), config.settings(), version_text()));
  });
  CLI::App* completion = add_hidden(
      app, "completion", "Print a shell's completions; `make install` puts them in their places");
  const auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("Example: source <(atoll completion bash)");
  completion->callback([&app, shell] { print_completion(app, *shell); });
}

}  // namespace atl::cli
