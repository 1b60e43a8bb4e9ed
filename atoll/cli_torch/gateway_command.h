#pragma once

namespace CLI {
class App;
}

namespace atl::cli {

/// `atoll gateway`: OpenAI's API for a model whose layers are served by others.
void add_gateway_command(CLI::App& app);

}  // namespace atl::cli
