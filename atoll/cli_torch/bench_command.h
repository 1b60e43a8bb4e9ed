#pragma once
// `atoll bench`: how fast this machine trains.
namespace CLI {
class App;
}

namespace atl::cli {
void add_bench_command(CLI::App& app);
}
