#pragma once
// `atoll data ...`: batch; the other subcommands have files of their own.

namespace CLI {
class App;
}

namespace atl::cli {

/// Registers the command with its callbacks, which throw InputError and UsageError.
void add_data_command(CLI::App& app);

}  // namespace atl::cli
