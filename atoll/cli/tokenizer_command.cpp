#include "atoll/cli/tokenizer_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/corpus_options.h"
#include "atoll/cli/whole_number.h"
#include "atoll/text/json_text.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/chat_template.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::cli {
namespace {

struct TrainArguments {
  data::CorpusOptions corpus;
  tokenizer::TrainerOptions trainer;
  std::string out = "tokenizer.json";
  bool json = false;
};

void train(const TrainArguments& arguments) {
  const SystemClock clock;
  const data::Corpus corpus(arguments.corpus);
  require_output_file(arguments.out, "--out");
  tokenizer::WordCounts words;
  int64_t num_replaced = 0;
  data::LeftOut left_out;
  {
    ProgressBar bar("reading", static_cast<double>(corpus.total_bytes()), clock);
    left_out = corpus.for_each([&](const data::CorpusDocument& document, int64_t bytes_done) {
      words.add(document.text);
      num_replaced += document.num_replaced;
      bar.update(static_cast<double>(bytes_done));
    });
    bar.update(static_cast<double>(corpus.total_bytes()));
  }
  warn_replaced(num_replaced);
  fmt::print(stderr, "{}", data::describe(left_out));
  std::string text;
  {
    ProgressBar bar("learning", static_cast<double>(arguments.trainer.vocab_size), clock);
    text = tokenizer::train_tokenizer(words, arguments.trainer, [&](int64_t num_ids) {
      if (num_ids % 64 == 0) bar.update(static_cast<double>(num_ids));
    });
  }
  write_file_atomically(arguments.out, text);
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::from_json(text, arguments.out);
  if (tokenizer.vocab_size() < arguments.trainer.vocab_size) {
    fmt::print(stderr, "atoll: the corpus gives only {} of {} ids at a minimum frequency of {}\n",
               tokenizer.vocab_size(), arguments.trainer.vocab_size,
               arguments.trainer.min_frequency);
  }
  if (arguments.json) {
    const nlohmann::ordered_json result = {
        {"tokenizer", arguments.out},   {"vocab_size", tokenizer.vocab_size()},
        {"sha256", tokenizer.sha256()}, {"bytes", corpus.total_bytes()},
        {"files", corpus.num_files()},  {"left_out", left_out.files.size()}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}: {} ids from {} files ({})\n", arguments.out, tokenizer.vocab_size(),
               corpus.num_files(), format_bytes(static_cast<double>(corpus.total_bytes())));
  }
}

struct EncodeArguments {
  std::string tokenizer;
  std::string text_file;
  bool special = false;
  bool json = false;
  bool jsonl = false;
};

/// What messages call a file that read_text() reads.
std::string name_of(const std::string& file) {
  return file.empty() || file == "-" ? "standard input" : file;
}

/// Calls use(line, where) for each line that is not empty.
template <typename Use>
void for_each_line(std::string_view text, const std::string& name, const Use& use) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!line.empty()) use(line, fmt::format("'{}' line {}", name, number));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
}

void encode_lines(const EncodeArguments& arguments, const tokenizer::Tokenizer& tokenizer) {
  tokenizer::Encoder encoder(tokenizer);
  const std::string text = read_text(arguments.text_file);
  int64_t num_replaced = 0;
  for_each_line(
      text, name_of(arguments.text_file), [&](std::string_view line, const std::string& where) {
        const nlohmann::json json = text::parse_json(text::repair_utf8(line, num_replaced), where);
        if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
          throw InputError(where + ": not an object with a string \"text\"");
        }
        std::vector<tokenizer::TokenId> ids;
        encoder.encode(json["text"].get<std::string>(), tokenizer::SpecialText::kToken, ids);
        if (arguments.special) ids = tokenizer.with_special_tokens(std::move(ids));
        fmt::print("{{\"ids\":[{}]}}\n", fmt::join(ids, ","));
      });
  warn_replaced(num_replaced);
  warn_lost(encoder);
}

void encode(const EncodeArguments& arguments) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(arguments.tokenizer);
  if (arguments.jsonl) return encode_lines(arguments, tokenizer);
  const std::string text = read_text(arguments.text_file);
  std::vector<tokenizer::TokenId> ids;
  tokenizer::Encoder encoder(tokenizer);
  encoder.encode(text, tokenizer::SpecialText::kToken, ids);
  if (arguments.special) ids = tokenizer.with_special_tokens(std::move(ids));
  warn_lost(encoder);
  if (arguments.json) {
    fmt::print("{{\"ids\":[{}]}}\n", fmt::join(ids, ","));
  } else {
    fmt::print("{}\n", fmt::join(ids, ","));
  }
}

struct DecodeArguments {
  std::string tokenizer;
  std::string ids;
  bool json = false;
  bool jsonl = false;
};

std::vector<tokenizer::TokenId> parse_ids(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);  // `atoll tokenizer encode` prints one.
  std::vector<tokenizer::TokenId> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    tokenizer::TokenId id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (stop < end && *stop != ',')) {
      throw UsageError(
          fmt::format("--ids: '{}' is not a list of token ids like 1,2,3", text.substr(0, 80)));
    }
    ids.push_back(id);
    at = stop + 1;
  }
  return ids;
}

void print_as_json(std::string_view text) {
  int64_t num_replaced = 0;  // JSON is UTF-8; a cut character shows as U+FFFD.
  const nlohmann::json result = {{"text", text::repair_utf8(text, num_replaced)}};
  fmt::print("{}\n", result.dump());
}

void decode_lines(const DecodeArguments& arguments, const tokenizer::Tokenizer& tokenizer) {
  if (arguments.ids != "-") throw UsageError("--jsonl reads standard input: --ids must be -");
  const std::string text = read_text("-");
  for_each_line(text, name_of("-"), [&](std::string_view line, const std::string& where) {
    const nlohmann::json json = text::parse_json(line, where);
    const auto is_id = [](const nlohmann::json& id) {
      return id.is_number_unsigned() && std::in_range<tokenizer::TokenId>(id.get<uint64_t>());
    };
    if (!json.is_object() || !json.contains("ids") || !json["ids"].is_array() ||
        !std::ranges::all_of(json["ids"], is_id)) {
      throw InputError(where + ": not an object with a list of token ids \"ids\"");
    }
    print_as_json(tokenizer.decode(json["ids"].get<std::vector<tokenizer::TokenId>>()));
  });
}

void decode(const DecodeArguments& arguments) {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(arguments.tokenizer);
  if (arguments.jsonl) return decode_lines(arguments, tokenizer);
  const std::vector<tokenizer::TokenId> ids =
      parse_ids(arguments.ids == "-" ? read_text("-") : arguments.ids);
  const std::string text = tokenizer.decode(ids);
  if (arguments.json) {
    print_as_json(text);
  } else {
    fmt::print("{}", text);
  }
}

struct ChatArguments {
  std::string tokenizer;
  std::string messages = "-";
  std::string chat_template;
  bool add_generation_prompt = false;
  bool ids = false;
  bool json = false;
  bool jsonl = false;
};

void chat(const ChatArguments& arguments) {
  std::optional<tokenizer::Tokenizer> tokenizer;
  if (arguments.ids || arguments.json || arguments.jsonl) {
    tokenizer.emplace(tokenizer::Tokenizer::load(arguments.tokenizer));
  }
  const auto found = tokenizer::ChatTemplate::beside(arguments.tokenizer, arguments.chat_template);
  const auto render = [&](std::string_view text, const std::string& where, bool as_json) {
    const auto json = text::parse_json<nlohmann::ordered_json>(text, where);
    tokenizer::Chat chat = tokenizer::Chat::from_json(json, where);
    chat.add_generation_prompt |= arguments.add_generation_prompt;
    const std::string rendered = found.render(chat);
    if (!tokenizer) return fmt::print("{}", rendered);
    const auto ids = tokenizer::ChatTemplate::encode(*tokenizer, rendered);
    if (!as_json) return fmt::print("{}\n", fmt::join(ids, ","));
    fmt::print("{}\n", nlohmann::ordered_json{{"text", rendered}, {"ids", ids}}.dump());
  };
  const std::string text = read_text(arguments.messages);
  const std::string name = name_of(arguments.messages);
  if (!arguments.jsonl) return render(text, "'" + name + "'", arguments.json);
  for_each_line(text, name, [&](std::string_view line, const std::string& where) {
    render(line, where, true);
  });
}

void add_train(CLI::App& tokenizer) {
  CLI::App* command = tokenizer.add_subcommand("train", "Learn a byte-level BPE vocabulary");
  const auto arguments = std::make_shared<TrainArguments>();
  add_corpus_options(*command, arguments->corpus);
  command
      ->add_option("--vocab-size", arguments->trainer.vocab_size,
                   "Ids, the 256 bytes and <|endoftext|> included")
      ->capture_default_str()
      ->check(whole_number(tokenizer::kMinVocabulary, tokenizer::kMaxVocabulary));
  command
      ->add_option("--min-frequency", arguments->trainer.min_frequency,
                   "Join only pairs that occur this often")
      ->capture_default_str()
      ->check(whole_number<int64_t>(1));
  command->add_option("--out", arguments->out, "The file to write")->capture_default_str();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Example: atoll tokenizer train src/ --include '*.py' --vocab-size 8192 "
      "--out tokenizer.json");
  command->callback([arguments] { train(*arguments); });
}

void add_encode(CLI::App& tokenizer) {
  CLI::App* command = tokenizer.add_subcommand("encode", "Text to token ids");
  const auto arguments = std::make_shared<EncodeArguments>();
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_option("--text", arguments->text_file,
                      "The text file; - (the default) is standard input");
  command->add_flag("--special", arguments->special,
                    "Add the tokens around the text that the file's post-processor asks for");
  CLI::Option* json = command->add_flag("--json", arguments->json, "Print {\"ids\":[...]}");
  command
      ->add_flag("--jsonl", arguments->jsonl,
                 "Of each line {\"text\":...} print a line {\"ids\":[...]}")
      ->excludes(json);
  command->footer("Example: echo 'def f():' | atoll tokenizer encode --tokenizer tokenizer.json");
  command->callback([arguments] { encode(*arguments); });
}

void add_decode(CLI::App& tokenizer) {
  CLI::App* command = tokenizer.add_subcommand("decode", "Token ids to text");
  const auto arguments = std::make_shared<DecodeArguments>();
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command
      ->add_option("--ids", arguments->ids,
                   "Ids with commas between them; - reads them from standard input")
      ->required();
  CLI::Option* json = command->add_flag("--json", arguments->json, "Print {\"text\":...}");
  command
      ->add_flag("--jsonl", arguments->jsonl,
                 "Of each line {\"ids\":[...]} print a line {\"text\":...}")
      ->excludes(json);
  command->footer("Example: atoll tokenizer decode --tokenizer tokenizer.json --ids 312,70,12");
  command->callback([arguments] { decode(*arguments); });
}

void add_chat(CLI::App& tokenizer) {
  CLI::App* command =
      tokenizer.add_subcommand("chat", "Messages to the text, or ids, that a chat model reads");
  const auto arguments = std::make_shared<ChatArguments>();
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "A folder with tokenizer.json, tokenizer_config.json and perhaps "
                   "chat_template.jinja, or its tokenizer.json")
      ->required();
  command->add_option("--messages", arguments->messages,
                      "JSON: a list of messages, or an object with \"messages\" and perhaps "
                      "\"tools\", \"documents\" and variables of the template; - (the default) is "
                      "standard input");
  command->add_option("--template", arguments->chat_template,
                      "Another template: a file, or chatml, llama3, plain");
  command->add_flag("--add-generation-prompt", arguments->add_generation_prompt,
                    "Behind the messages, what begins the answer");
  CLI::Option* ids = command->add_flag("--ids", arguments->ids, "Print token ids");
  CLI::Option* json =
      command->add_flag("--json", arguments->json, "Print {\"text\":...,\"ids\":[...]}");
  command->add_flag("--jsonl", arguments->jsonl, "The same for each line of --messages")
      ->excludes(json)
      ->excludes(ids);
  command->footer(
      "Example: echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | "
      "atoll tokenizer chat --tokenizer my-model --add-generation-prompt");
  command->callback([arguments] { chat(*arguments); });
}

}  // namespace

void add_tokenizer_command(CLI::App& app) {
  CLI::App* tokenizer =
      app.add_subcommand("tokenizer", "Train a tokenizer; encode and decode text and chats");
  tokenizer->require_subcommand(1);
  add_train(*tokenizer);
  add_encode(*tokenizer);
  add_decode(*tokenizer);
  add_chat(*tokenizer);
}

}  // namespace atl::cli
