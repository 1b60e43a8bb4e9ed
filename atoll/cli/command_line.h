#pragma once
// What the two programs share. `atoll` starts in milliseconds and has no LibTorch; subcommands that
// need it live in `atoll-torch` beside it, which `atoll` becomes (same process).
#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}
namespace atl::tokenizer {
class Encoder;
}

namespace atl::cli {

/// Parses and runs; turns exceptions into messages and exit codes (1 failed, 2 wrong usage, 130
/// interrupted). Results that cannot be written to stdout are a failure.
int run_app(CLI::App& app, int argc, char** argv);

/// Replaces this process by atoll-torch with the same arguments and `more`. Does not return.
[[noreturn]] void become_torch_program(char** argv, const std::vector<std::string>& more = {});

/// "--section.key=value" among the words CLI11 left over, as "section.key=value". Throws UsageError
/// at any other word.
std::vector<std::string> overrides_from(const std::vector<std::string>& rest);

/// What --tokenizer takes.
inline constexpr const char* kTokenizerHelp =
    "tokenizer.json, tokenizer.model, tekken.json, a tiktoken or GGUF file, or a folder with one";

/// The whole of a file, or of standard input where `file` is empty or "-".
std::string read_text(const std::string& file);

/// Before long work whose result goes to `path` (folders above it are made): throws UsageError when
/// it is empty, InputError when it could not be written. `option` appears in messages.
void require_output_file(const std::string& path, const std::string& option);

/// What an argument that may be an invite stands for (identity::read_invite_argument). Once: "-" is
/// the next line of the standard input. Throws InputError, which names `option`.
std::string invite_said(const std::string& option, const std::string& argument);

/// Of an argument that become_torch_program() hid from who lists processes: it was read.
void close_hidden(const std::string& argument);
/// What --insecure means, on stderr.
void warn_insecure();

/// Tells on stderr how many byte sequences were read as U+FFFD, if any.
void warn_replaced(int64_t num_replaced);
void warn_without_token(int64_t num_without_token);
/// Both, of all that it encoded.
void warn_lost(const tokenizer::Encoder& encoder);

}  // namespace atl::cli
