#pragma once

namespace CLI {
class App;
}

namespace atl::cli {

/// `atoll relay`: a place where members of a run meet that cannot reach each other.
void add_relay_command(CLI::App& app);

}  // namespace atl::cli
