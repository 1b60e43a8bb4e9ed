#pragma once
// What an installation asks of the programs: the man page and the completions of shells. Hidden
// from
// --help.

namespace CLI {
class App;
}

namespace atl::cli {

/// `atoll man` and `atoll completion SHELL`, of the commands of both programs.
void add_installed_help(CLI::App& app);

}  // namespace atl::cli
