#pragma once
// `atoll tokenizer train | encode | decode`.

namespace CLI {
class App;
}

namespace atl::cli {

/// Registers the command with its callbacks, which throw InputError and UsageError.
void add_tokenizer_command(CLI::App& app);

}  // namespace atl::cli
