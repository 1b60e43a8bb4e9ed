#pragma once
// What may be typed behind a program's name, as data: of it the man page and the completions of
// shells are made. The two programs share one name, so there is one tree of both.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace atl::cli {

struct CommandOption {
  std::vector<std::string> names;  // "--data", "-h"; none: it goes by its place alone.
  std::string place;               // What it is called where it needs no name.
  std::string argument;            // What it takes: "INT". Empty: it is a flag.
  std::string help;
  std::string usual;  // The value where it is not given, if that is known.
  std::vector<std::string> choices;
  bool is_required = false;
  bool repeats = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommandOption, names, place, argument, help, usual, choices,
                                   is_required, repeats)

struct Command {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<CommandOption> options;
  bool takes_settings = false;  // --section.key=value.
  std::vector<Command> commands;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Command, name, description, footer, options, takes_settings,
                                   commands)

/// All but what is hidden.
Command command_of(const CLI::App& app);
/// The hidden `atoll-torch commands`: the same as JSON, for the other program.
void add_command_list(CLI::App& app);

/// A command with the words that lead to it: "atoll data pack".
struct PlacedCommand {
  std::string path;
  const Command* command;
};
/// The tree in the order of its help, a group before what is in it. Alive while `root` is.
std::vector<PlacedCommand> all_commands(const Command& root);

}  // namespace atl::cli
