#include "atoll/cli/command_tree.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace atl::cli {
namespace {

/// Of "TEXT:{train,validation}", as CLI11 writes what may be chosen.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{');
  const size_t close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

CommandOption option_of(const CLI::Option& option) {
  CommandOption described{.help = option.get_description(), .usual = option.get_default_str()};
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  const std::string type = option.get_type_name();
  described.choices = choices_in(type);
  if (option.get_positional()) described.place = option.get_name(/*positional=*/true);
  if (option.get_items_expected_max() > 0) {
    const std::string last = type.substr(type.rfind(':') + 1);  // "TEXT:FILE"
    described.argument = described.choices.empty() && !last.empty() ? last : "WORD";
  }
  described.is_required = option.get_required();
  described.repeats = option.get_items_expected_max() >= CLI::detail::expected_max_vector_size;
  return described;
}

void place(const Command& command, const std::string& path, std::vector<PlacedCommand>& placed) {
  placed.push_back({.path = path + command.name, .command = &command});
  for (const Command& one : command.commands) place(one, path + command.name + " ", placed);
}

}  // namespace

Command command_of(const CLI::App& app) {
  Command command{.name = app.get_name(),
                  .description = app.get_description(),
                  .footer = app.get_footer(),
                  .takes_settings = app.get_allow_extras()};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) command.options.push_back(option_of(*option));
  }
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!one->get_group().empty()) command.commands.push_back(command_of(*one));
  }
  return command;
}

void add_command_list(CLI::App& app) {
  app.add_subcommand("commands", "Print the commands, for the other program")
      ->group("")
      ->callback([&app] { fmt::print("{}\n", nlohmann::json(command_of(app)).dump()); });
}

std::vector<PlacedCommand> all_commands(const Command& root) {
  std::vector<PlacedCommand> placed;
  place(root, "", placed);
  return placed;
}

}  // namespace atl::cli
