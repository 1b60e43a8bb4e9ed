#pragma once
// `atoll generate`: continue a prompt.
namespace CLI {
class App;
}

namespace atl::cli {
void add_generate_command(CLI::App& app);
}
