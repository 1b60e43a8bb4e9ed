#pragma once
// `atoll bench`: what this machine can do.
namespace CLI {
class App;
}

namespace atl::cli {

/// `argv`: of the process, which becomes the other program for what the subcommands name.
void add_bench_command(CLI::App& app, char** argv);

}  // namespace atl::cli
