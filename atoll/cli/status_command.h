#pragma once
// `atoll status`: how a run goes, asked of its coordinator. Needs no LibTorch.

namespace CLI {
class App;
}

namespace atl::cli {
void add_status_command(CLI::App& app);
}
