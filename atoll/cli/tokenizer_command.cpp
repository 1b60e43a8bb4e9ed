#include "atoll/cli/tokenizer_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/corpus_options.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/tokenizer.h"
#include "atoll/data/tokenizer_trainer.h"
#include "atoll/data/utf8.h"

namespace atl::cli {
namespace {

struct TrainArguments {
  data::CorpusOptions corpus;
  data::TrainerOptions trainer;
  std::string out = "tokenizer.json";
  bool json = false;
};

void train(const TrainArguments& arguments) {
  const SystemClock clock;
  const data::Corpus corpus(arguments.corpus);
  require_output_file(arguments.out, "--out");
  data::WordCounts words;
  {
    ProgressBar bar("reading", static_cast<double>(corpus.total_bytes()), clock);
    corpus.for_each([&](const data::CorpusDocument& document) {
      words.add(document.text);
      bar.update(static_cast<double>(corpus.bytes_done()));
    });
    bar.update(static_cast<double>(corpus.total_bytes()));
  }
  warn_replaced(words.num_replaced());
  std::string text;
  {
    ProgressBar bar("learning", static_cast<double>(arguments.trainer.vocab_size), clock);
    text = data::train_tokenizer(words, arguments.trainer, [&](int64_t num_ids) {
      if (num_ids % 64 == 0) bar.update(static_cast<double>(num_ids));
    });
  }
  write_file_atomically(arguments.out, text);
  const data::Tokenizer tokenizer = data::Tokenizer::from_json(text, arguments.out);
  if (tokenizer.vocab_size() < arguments.trainer.vocab_size) {
    fmt::print(stderr, "atoll: the corpus gives only {} of {} ids at a minimum frequency of {}\n",
               tokenizer.vocab_size(), arguments.trainer.vocab_size,
               arguments.trainer.min_frequency);
  }
  if (arguments.json) {
    const nlohmann::ordered_json result = {{"tokenizer", arguments.out},
                                           {"vocab_size", tokenizer.vocab_size()},
                                           {"sha256", tokenizer.sha256()},
                                           {"bytes", corpus.total_bytes()},
                                           {"files", corpus.num_files()}};
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
};

void encode(const EncodeArguments& arguments) {
  const data::Tokenizer tokenizer = data::Tokenizer::load(arguments.tokenizer);
  const std::string text = read_text(arguments.text_file);
  std::vector<data::TokenId> ids;
  data::Encoder encoder(tokenizer);
  encoder.encode(text, data::SpecialText::kToken, ids);
  if (arguments.special) ids = tokenizer.with_special_tokens(std::move(ids));
  warn_replaced(encoder.num_replaced());
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
};

std::vector<data::TokenId> parse_ids(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);  // `atoll tokenizer encode` prints one.
  std::vector<data::TokenId> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    data::TokenId id = 0;
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

void decode(const DecodeArguments& arguments) {
  const data::Tokenizer tokenizer = data::Tokenizer::load(arguments.tokenizer);
  const std::vector<data::TokenId> ids =
      parse_ids(arguments.ids == "-" ? read_text("-") : arguments.ids);
  const std::string text = tokenizer.decode(std::span<const data::TokenId>(ids));
  if (arguments.json) {
    int64_t num_replaced = 0;  // JSON is UTF-8; a cut character shows as U+FFFD.
    const nlohmann::json result = {{"text", data::repair_utf8(text, num_replaced)}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}", text);
  }
}

void add_train(CLI::App& tokenizer) {
  CLI::App* command = tokenizer.add_subcommand("train", "Learn a byte-level BPE vocabulary");
  const auto arguments = std::make_shared<TrainArguments>();
  add_corpus_options(*command, arguments->corpus);
  command
      ->add_option("--vocab-size", arguments->trainer.vocab_size,
                   "Ids, the 256 bytes and <|endoftext|> included")
      ->capture_default_str()
      ->check(whole_number(data::kMinVocabulary, data::kMaxVocabulary));
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
  command->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json")->required();
  command->add_option("--text", arguments->text_file,
                      "The text file; - (the default) is standard input");
  command->add_flag("--special", arguments->special,
                    "Add the tokens around the text that the file's post-processor asks for");
  command->add_flag("--json", arguments->json, "Print {\"ids\":[...]}");
  command->footer("Example: echo 'def f():' | atoll tokenizer encode --tokenizer tokenizer.json");
  command->callback([arguments] { encode(*arguments); });
}

void add_decode(CLI::App& tokenizer) {
  CLI::App* command = tokenizer.add_subcommand("decode", "Token ids to text");
  const auto arguments = std::make_shared<DecodeArguments>();
  command->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json")->required();
  command
      ->add_option("--ids", arguments->ids,
                   "Ids with commas between them; - reads them from standard input")
      ->required();
  command->add_flag("--json", arguments->json, "Print {\"text\":...}");
  command->footer("Example: atoll tokenizer decode --tokenizer tokenizer.json --ids 312,70,12");
  command->callback([arguments] { decode(*arguments); });
}

}  // namespace

void add_tokenizer_command(CLI::App& app) {
  CLI::App* tokenizer =
      app.add_subcommand("tokenizer", "Train a tokenizer; encode and decode text");
  tokenizer->require_subcommand(1);
  add_train(*tokenizer);
  add_encode(*tokenizer);
  add_decode(*tokenizer);
}

}  // namespace atl::cli
