#pragma once
// What the two programs share. `atoll` starts in milliseconds and has no LibTorch; subcommands that
// need it live in `atoll-torch` beside it, which `atoll` becomes (same process).
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace atl::cli {

/// Parses and runs; turns exceptions into messages and exit codes (1 failed, 2 wrong usage).
int run_app(CLI::App& app, int argc, char** argv);

/// Replaces this process by atoll-torch with the same arguments and `more`. Does not return.
[[noreturn]] void become_torch_program(char** argv, const std::vector<std::string>& more = {});

/// The path of a program in the folder of the running one.
std::string sibling_program(const std::string& name);

/// "--section.key=value" among the words CLI11 left over, as "section.key=value". Throws UsageError
/// at any other word.
std::vector<std::string> overrides_from(const std::vector<std::string>& rest);

}  // namespace atl::cli
