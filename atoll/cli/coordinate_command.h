#pragma once
// `atoll coordinate`: the process that agrees membership and rounds. Needs no LibTorch.

namespace CLI {
class App;
}

namespace atl::cli {
void add_coordinate_command(CLI::App& app);
}
