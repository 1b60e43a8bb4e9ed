#pragma once
// `atoll plan`: what to train with these islands and links, and what it will come to.

namespace CLI {
class App;
}

namespace atl::cli {

/// Registers the command with its callback, which throws InputError and UsageError.
void add_plan_command(CLI::App& app);

}  // namespace atl::cli
