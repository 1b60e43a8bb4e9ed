#include "atoll/cli_torch/generate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/sampling_arguments.h"
#include "atoll/serve/generate.h"
#include "atoll/text/json_text.h"
#include "atoll/tokenizer/text_stream.h"

namespace atl::cli {
namespace {

struct GenerateArguments {
  ModelArguments model;
  SamplingArguments sampling;
  std::vector<std::string> prompts;
  std::string prompts_file;
  bool json = false;
};

constexpr const char* kFooter = R"(
Prints the continuation, without the prompt, as it is made; of several prompts each under its own
heading, in their order. Up to 32 prompts go through the model together, and what they begin with
alike is read once; each gives what it would alone. With --seed S prompt number N (from 0) draws as
it would alone with --seed S+N.

--json prints one object at the end: text, ids (of the continuation) and finish_reason: "stop" (the
model ended the text, or a --stop text came) or "length". Of several prompts these are the first
one's, and "generations" has the same of all.

Examples:
  atoll generate runs/demo --prompt "def add(a, b):" --max-tokens 60 --greedy
  atoll generate my-model --prompt "Once" --temperature 0.8 --min-p 0.05 --seed 7 --stop "The end"
  atoll generate my-model --prompts questions.jsonl --greedy --json)";

/// Lines of text, or of {"prompt": text} where the file's name ends in .jsonl.
void add_prompts(const std::string& file, std::vector<std::string>& prompts) {
  const std::string text = read_text(file);
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.empty()) continue;
    if (!file.ends_with(".jsonl")) {
      prompts.emplace_back(line);
      continue;
    }
    const std::string where = fmt::format("'{}' line {}", file, number);
    const nlohmann::json json = text::parse_json(line, where);
    if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string()) {
      throw InputError(where + ": not an object with a text \"prompt\"");
    }
    prompts.push_back(json["prompt"].get<std::string>());
  }
}

std::vector<int64_t> prompt_ids(const LoadedModel& loaded, const std::string& prompt,
                                const std::vector<int64_t>& ends) {
  std::vector<tokenizer::TokenId> ids;
  tokenizer::Encoder encoder(loaded.tokenizer);
  encoder.encode(prompt, tokenizer::SpecialText::kToken, ids);
  warn_lost(encoder);
  ids = loaded.tokenizer.with_special_tokens(std::move(ids));
  std::vector<int64_t> wide(ids.begin(), ids.end());
  if (wide.empty()) {  // What begins a document is the end of the one before.
    if (ends.empty()) {
      throw UsageError("--prompt is empty, and this model has no token to begin with");
    }
    wide.push_back(ends[0]);
  }
  return wide;
}

/// The rows' texts, printed in the order of the rows: what is not its turn yet waits.
class Printer {
 public:
  Printer(const std::vector<std::string>& prompts, const std::vector<std::string>& stops,
          bool is_silent)
      : prompts_(prompts),
        is_silent_(is_silent),
        streams_(prompts.size(), tokenizer::TextStream(stops)),
        texts_(prompts.size()),
        is_over_(prompts.size()) {}

  /// The first row's turn.
  void begin() {
    if (!is_silent_ && prompts_.size() > 1) {
      fmt::print("{}== {}: {}\n", turn_ == 0 ? "" : "\n", turn_ + 1, prompts_[turn_]);
    }
    print();
  }
  /// Whether the row goes on.
  bool add(size_t row, std::string_view bytes) {
    texts_[row] += streams_[row].add(bytes);
    if (row == turn_) print();
    return !streams_[row].is_stopped();
  }
  void finish(size_t row) {
    texts_[row] += streams_[row].finish();
    is_over_[row] = true;
    if (row == turn_) print();
    while (turn_ < texts_.size() && is_over_[turn_]) {
      if (!is_silent_) fmt::print("\n");
      num_printed_ = 0;
      if (++turn_ < texts_.size()) begin();
    }
  }
  const std::string& text(size_t row) const { return texts_[row]; }

 private:
  void print() {
    if (is_silent_) return;
    fmt::print("{}", std::string_view(texts_[turn_]).substr(num_printed_));
    num_printed_ = texts_[turn_].size();
    flush_standard_output();  // Nobody reads on: no reason to go on.
  }

  const std::vector<std::string>& prompts_;
  const bool is_silent_;
  std::vector<tokenizer::TextStream> streams_;
  std::vector<std::string> texts_;
  std::vector<bool> is_over_;
  size_t turn_ = 0;
  size_t num_printed_ = 0;
};

/// The end that nobody asked for: the model can read no more.
void note_full_context(const LoadedModel& loaded, const serve::Generation& found,
                       int64_t max_tokens) {
  if (found.reason != serve::FinishReason::kLength || std::ssize(found.ids) == max_tokens) return;
  fmt::print(stderr, "atoll: stopped after {} of {} tokens: the model's context of {} is full\n",
             found.ids.size(), max_tokens, loaded.model.config().context());
}

void generate(const GenerateArguments& arguments) {
  std::vector<std::string> texts = arguments.prompts;
  if (!arguments.prompts_file.empty()) add_prompts(arguments.prompts_file, texts);
  if (texts.empty()) throw UsageError("no prompt: give --prompt or --prompts");
  Printer printer(texts, arguments.sampling.stops, arguments.json);
  decoding::check(arguments.sampling.options.sampler);
  const LoadedModel loaded = load_model(arguments.model);
  const serve::GenerateOptions options = sampling_options(arguments.sampling, loaded);
  std::vector<std::vector<int64_t>> prompts;
  for (const std::string& text : texts) prompts.push_back(prompt_ids(loaded, text, options.ends));
  printer.begin();
  const auto found = serve::generate(
      loaded.model, prompts, options,
      {.token = [&](size_t row,
                    int64_t id) { return printer.add(row, loaded.tokenizer.bytes_or_none(id)); },
       .ended = [&](size_t row) { printer.finish(row); }});
  for (const auto& each : found) note_full_context(loaded, each, options.max_tokens);
  if (!arguments.json) return;
  nlohmann::ordered_json list;
  for (size_t row = 0; row < found.size(); ++row) {
    list.push_back({{"text", printer.text(row)},
                    {"ids", found[row].ids},
                    {"finish_reason", decoding::name_of(found[row].reason)}});
  }
  nlohmann::ordered_json json = list[0];
  if (found.size() > 1) json["generations"] = list;
  fmt::print("{}\n", json.dump());
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "Continue prompts with a model");
  auto arguments = std::make_shared<GenerateArguments>();
  add_model_arguments(*command, arguments->model);
  command
      ->add_option("--prompt", arguments->prompts,
                   "the text to continue; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--prompts", arguments->prompts_file,
                      "a file with a prompt on each line, in .jsonl as {\"prompt\":...}");
  add_sampling_arguments(*command, arguments->sampling);
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kFooter);
  command->callback([arguments] { generate(*arguments); });
}

}  // namespace atl::cli
