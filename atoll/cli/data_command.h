#pragma once
// `atoll data ...`: pack and batch; info, verify, order, import and export have files of their own.

namespace CLI {
class App;
}

namespace atl::cli {

/// Registers the command with its callbacks, which throw InputError and UsageError.
void add_data_command(CLI::App& app);

}  // namespace atl::cli
