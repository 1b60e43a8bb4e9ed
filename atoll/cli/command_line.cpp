#include "atoll/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/nearest.h"
#include "atoll/base/number.h"
#include "atoll/base/process.h"
#include "atoll/base/process_lost.h"
#include "atoll/identity/invite.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::cli {

namespace {

/// The subcommand of `app` that a word names and that does not exist, with the nearest that does.
/// CLI11 would say only that a subcommand is required.
void require_known_commands(const CLI::App& app, char** words) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || *words == nullptr || **words == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    if (command->get_name() == *words) return require_known_commands(*command, words + 1);
    if (!command->get_group().empty()) names.push_back(command->get_name());  // Not hidden.
  }
  const std::string near = nearest(*words, names);
  throw UsageError(fmt::format("unknown command '{}'; {}", *words,
                               near.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                            : fmt::format("did you mean '{}'?", near)));
}

/// The command that was being read, as one types it.
std::string command_name(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* one = &app; !one->get_subcommands().empty();) {
    one = one->get_subcommands().front();
    name += " " + one->get_name();
  }
  return name;
}

int fail(const std::string& message, int code) {
  fmt::print(stderr, "atoll: {}\n", message);
  return code;
}

int parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    require_known_commands(app, argv + 1);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& done) {
    std::ostringstream text;  // --help, --version; std::cout would keep no reason of a failure.
    const int code = app.exit(done, text);
    fmt::print("{}", text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    return fail(fmt::format("{}\natoll: `{} --help` shows how", error.what(), command_name(app)),
                2);
  } catch (const UsageError& error) {
    return fail(error.what(), 2);
  } catch (const ProcessLost& error) {
    return fail(error.what(), kProcessLostStatus);
  } catch (const Interrupted& error) {
    return fail(error.what(), kInterruptedStatus);
  } catch (const std::system_error& error) {
    // What fmt::print throws knows neither the stream nor that it was one.
    const bool output = std::ferror(stdout) != 0;
    return fail(output ? "cannot write standard output: " + error.code().message() : error.what(),
                1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}

constexpr std::string_view kHidden = "@/dev/fd/";

/// The word by way of a file in memory: who lists processes sees their arguments.
std::string hidden(const char* invite) {
  const int file = ::memfd_create("invite", 0);
  const std::string_view word(invite);
  if (file < 0 || ::write(file, word.data(), word.size()) != std::ssize(word)) {
    throw InputError(fmt::format("cannot pass the invite on: {}", std::strerror(errno)));
  }
  ::lseek(file, 0, SEEK_SET);
  return fmt::format("{}{}", kHidden, file);
}

}  // namespace

int run_app(CLI::App& app, int argc, char** argv) {
  const int code = parse_and_run(app, argc, argv);
  if (code != 0) return code;
  try {
    flush_standard_output();
    return 0;
  } catch (const InputError& error) {
    return fail(error.what(), 1);
  }
}

void become_torch_program(char** argv, const std::vector<std::string>& more) {
  const std::string program = sibling_program("atoll-torch");
  std::vector<const char*> words;
  std::deque<std::string> replaced;
  for (char** word = argv; *word != nullptr; ++word) {
    const bool takes_invites =
        argv[1] == std::string_view("join") || argv[1] == std::string_view("train");
    const bool is_secret = takes_invites && identity::is_invite_word(*word);
    words.push_back(is_secret ? replaced.emplace_back(hidden(*word)).c_str() : *word);
  }
  for (const std::string& word : more) words.push_back(word.c_str());
  words.push_back(nullptr);
  ::execv(program.c_str(), const_cast<char* const*>(words.data()));
  throw InputError(
      fmt::format("this command needs LibTorch, and '{}' cannot be started: {}; build it "
                  "with ATOLL_TORCH=ON (`make build` does)",
                  program, std::strerror(errno)));
}

std::string invite_said(const std::string& option, const std::string& argument) {
  try {
    std::string text = identity::read_invite_argument(argument);
    close_hidden(argument);
    return text;
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", option, error.what()));
  }
}

void close_hidden(const std::string& argument) {
  if (!argument.starts_with(kHidden)) return;
  const auto file = number_in<int>(std::string_view(argument).substr(kHidden.size()));
  if (file && *file > 2) ::close(*file);
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

std::string read_text(const std::string& file) {
  if (!file.empty() && file != "-") return read_file(file);
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::ferror(stdin) != 0) {
    throw InputError(fmt::format("cannot read standard input: {}", std::strerror(errno)));
  }
  return text;
}

void require_output_file(const std::string& path, const std::string& option) {
  if (path.empty()) throw UsageError(fmt::format("{} needs the name of a file", option));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    throw InputError(fmt::format("cannot make folder '{}': {}", folder.string(), error.message()));
  }
  require_writable(path);
}

void warn_insecure() {
  fmt::print(stderr,
             "atoll: warning: --insecure: connections are neither encrypted nor authenticated; "
             "anyone on the network can read and alter the run\n");
}

void warn_replaced(int64_t num_replaced) {
  if (num_replaced == 0) return;
  fmt::print(stderr, "atoll: {} byte sequences are not UTF-8 and were read as U+FFFD\n",
             num_replaced);
}

void warn_without_token(int64_t num_without_token) {
  if (num_without_token == 0) return;
  fmt::print(stderr,
             "atoll: {} characters (or bytes of them) have no token in this vocabulary and were "
             "left out\n",
             num_without_token);
}

void warn_lost(const tokenizer::Encoder& encoder) {
  warn_replaced(encoder.num_replaced());
  warn_without_token(encoder.num_without_token());
}

}  // namespace atl::cli
