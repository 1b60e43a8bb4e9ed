#include "atoll/cli/generate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/model_arguments.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/utf8.h"
#include "atoll/serve/generate.h"

namespace atl::cli {
namespace {

struct GenerateArguments {
  ModelArguments model;
  std::string prompt;
  serve::GenerateOptions options;
  bool greedy = false;
  bool json = false;
};

constexpr const char* kFooter = R"(
Prints the continuation, without the prompt, as it is made. --json prints one object at the end:
text, ids (of the continuation) and finish_reason: "stop" (the model ended the text) or "length".

Examples:
  atoll generate runs/demo --prompt "def add(a, b):" --max-tokens 60 --greedy
  atoll generate my-model --prompt "Once" --temperature 0.8 --top-p 0.9 --seed 7 --json)";

/// The id that ends a text, where the model or its tokenizer names one.
std::optional<int64_t> end_of_text(const LoadedModel& loaded) {
  if (loaded.ids.end_of_text) return loaded.ids.end_of_text;
  try {
    return loaded.tokenizer.end_of_text();
  } catch (const InputError&) {
    return std::nullopt;  // Then only --max-tokens and the context end the text.
  }
}

std::vector<int64_t> prompt_ids(const LoadedModel& loaded, const std::string& prompt) {
  std::vector<data::TokenId> ids;
  data::Encoder encoder(loaded.tokenizer);
  encoder.encode(prompt, data::SpecialText::kToken, ids);
  warn_replaced(encoder.num_replaced());
  ids = loaded.tokenizer.with_special_tokens(std::move(ids));
  std::vector<int64_t> wide(ids.begin(), ids.end());
  if (wide.empty()) {  // What begins a document is the end of the one before.
    const auto end = end_of_text(loaded);
    if (!end) throw UsageError("--prompt is empty, and this model has no token to begin with");
    wide.push_back(*end);
  }
  return wide;
}

/// Writes text as it comes, but no broken characters: a token may end inside one.
class Stream {
 public:
  void add(std::string_view bytes) {
    pending_ += bytes;
    const size_t whole = data::valid_utf8_prefix(pending_);
    const bool hopeless = pending_.size() - whole >= 4;  // No character is that long.
    write(hopeless ? pending_.size() : whole);
  }
  void finish() {
    write(pending_.size());
    fmt::print("\n");
  }

 private:
  void write(size_t size) {
    int64_t replaced = 0;
    fmt::print("{}", data::repair_utf8(std::string_view(pending_).substr(0, size), replaced));
    flush_standard_output();  // Nobody reads on: no reason to go on.
    pending_.erase(0, size);
  }
  std::string pending_;
};

/// The end that nobody asked for: the model can read no more.
void note_full_context(const LoadedModel& loaded, const serve::Generation& found,
                       int64_t max_tokens) {
  if (found.reason != serve::FinishReason::kLength || std::ssize(found.ids) == max_tokens) return;
  fmt::print(stderr, "atoll: stopped after {} of {} tokens: the model's context of {} is full\n",
             found.ids.size(), max_tokens, loaded.model.config().context());
}

void generate(GenerateArguments arguments) {
  if (arguments.greedy) arguments.options.sampler.temperature = 0;
  serve::check(arguments.options.sampler);
  const LoadedModel loaded = load_model(arguments.model);
  arguments.options.end_of_text = end_of_text(loaded);
  const std::vector<int64_t> prompt = prompt_ids(loaded, arguments.prompt);
  if (!arguments.json) {
    Stream stream;
    const std::function<void(int64_t)> print = [&](int64_t id) {
      stream.add(loaded.tokenizer.decode_part(std::span<const int64_t>(&id, 1)));
    };
    const auto found = serve::generate(loaded.model, prompt, arguments.options, print);
    stream.finish();
    note_full_context(loaded, found, arguments.options.max_tokens);
    return;
  }
  const serve::Generation found = serve::generate(loaded.model, prompt, arguments.options, {});
  note_full_context(loaded, found, arguments.options.max_tokens);
  int64_t replaced = 0;
  const nlohmann::ordered_json json{
      {"text", data::repair_utf8(loaded.tokenizer.decode_part(found.ids), replaced)},
      {"ids", found.ids},
      {"finish_reason", serve::name_of(found.reason)}};
  fmt::print("{}\n", json.dump());
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "Continue a prompt with a model");
  auto arguments = std::make_shared<GenerateArguments>();
  serve::SamplerOptions& sampler = arguments->options.sampler;
  add_model_arguments(*command, arguments->model);
  command->add_option("--prompt", arguments->prompt, "the text to continue")->required();
  command->add_option("--max-tokens", arguments->options.max_tokens, "tokens to add (default: 128)")
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  auto* greedy = command->add_flag("--greedy", arguments->greedy, "always the likeliest token");
  command
      ->add_option("--temperature", sampler.temperature,
                   "divides the logits; 0 is --greedy (default: 1)")
      ->excludes(greedy);
  command->add_option("--top-k", sampler.top_k, "only the k likeliest tokens; 0: all (default: 0)")
      ->check(whole_number<int64_t>(0))
      ->excludes(greedy);
  command
      ->add_option("--top-p", sampler.top_p,
                   "only the likeliest tokens that reach this probability (default: 1)")
      ->excludes(greedy);
  command->add_option("--seed", sampler.seed, "of the random draws (default: 0)")
      ->check(whole_number<uint64_t>(0))
      ->excludes(greedy);
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kFooter);
  command->callback([arguments] { generate(*arguments); });
}

}  // namespace atl::cli
