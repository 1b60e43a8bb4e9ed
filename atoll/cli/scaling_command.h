#pragma once
// `atoll scaling fit | predict | simulate | sweep`.

namespace CLI {
class App;
}

namespace atl::cli {

/// Registers the command with its callbacks, which throw InputError and UsageError.
void add_scaling_command(CLI::App& app);

/// Its parts.
void add_scaling_fit(CLI::App& scaling);
void add_scaling_predict(CLI::App& scaling);
void add_scaling_simulate(CLI::App& scaling);
void add_scaling_sweep(CLI::App& scaling);

}  // namespace atl::cli
