#pragma once
// `atoll kv`: profiles of a model's keys and values, and how well they compress.
namespace CLI {
class App;
}

namespace atl::cli {
void add_kv_command(CLI::App& app);
}
