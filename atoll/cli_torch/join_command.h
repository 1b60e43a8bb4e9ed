#pragma once
// `atoll join HOST:PORT`: this machine becomes an island of a run.

namespace CLI {
class App;
}

namespace atl::cli {
void add_join_command(CLI::App& app);
}
