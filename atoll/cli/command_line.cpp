#include "atoll/cli/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "atoll/base/error.h"

namespace atl::cli {

int run_app(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "atoll: {}\n", error.what());
    fmt::print(stderr, "atoll: `{} --help` shows how\n", app.get_name());
    return 2;
  } catch (const UsageError& error) {
    fmt::print(stderr, "atoll: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "atoll: {}\n", error.what());
    return 1;
  }
}

std::string sibling_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

void become_torch_program(char** argv, const std::vector<std::string>& more) {
  const std::string program = sibling_program("atoll-torch");
  std::vector<const char*> words;
  for (char** word = argv; *word != nullptr; ++word) words.push_back(*word);
  for (const std::string& word : more) words.push_back(word.c_str());
  words.push_back(nullptr);
  ::execv(program.c_str(), const_cast<char* const*>(words.data()));
  throw InputError(
      fmt::format("this command needs LibTorch, and '{}' cannot be started: {}; build it "
                  "with ATOLL_TORCH=ON (`make build` does)",
                  program, std::strerror(errno)));
}

std::vector<std::string> overrides_from(const std::vector<std::string>& rest) {
  std::vector<std::string> overrides;
  for (const std::string& word : rest) {
    const bool is_setting = word.starts_with("--") && word.find('.') != std::string::npos;
    if (!is_setting) throw UsageError(fmt::format("unknown option or argument '{}'", word));
    overrides.push_back(word.substr(2));
  }
  return overrides;
}

}  // namespace atl::cli
