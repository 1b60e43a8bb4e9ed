#include "atoll/cli_torch/eval_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/cli_torch/eval_tasks.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/text/utf8.h"
#include "atoll/train/evaluate.h"

namespace atl::cli {
namespace {

struct EvalArguments {
  ModelArguments model;
  std::string text_file;
  std::string store;
  std::string split = "validation";
  int64_t rows = 0;    // 0: all.
  int64_t window = 0;  // 0: the model's context.
  std::string per_token;
  bool json = false;
  TaskArguments tasks;
};

struct Measured {
  double loss = 0;  // Nats per predicted token.
  double bits_per_byte = 0;
  int64_t tokens = 0;
};

constexpr const char* kFooter = R"(
--text: every token but the first is predicted from those before it; a text longer than the window
is read in windows that overlap by half. Special tokens written out in the text count as such, as in
Hugging Face. bits_per_byte divides by the bytes of the whole text.
--store: mean over rows of the split, each read by itself.
--tasks: tasks of lm-evaluation-harness (multiple_choice, loglikelihood, loglikelihood_rolling) from
local YAML or JSON files, its own among them; its scores, its table, and with --output its results
file. Data are local: files that a task names, or for a data set of the Hub the folder that --data
names (as `datasets` or the Hub's tools leave it, or files like validation.jsonl; Arrow and Parquet
where Atoll was built with Arrow's libraries). What a task asks for and Atoll does not have is an
error (docs/evaluation.md).
--per-token writes one JSON line per token: id, text, logprob (natural logarithm; null for the
first) and rank (1: the model's first guess; null for the first).

Examples:
  atoll eval runs/demo --text README.md --json
  atoll eval my-model --text README.md --per-token tokens.jsonl
  atoll eval runs/demo --store runs/demo/data
  atoll eval my-model --tasks tasks/sea.yaml --output scores.json --log-samples answers.jsonl
  atoll eval my-model --tasks sea,harbours --include-path tasks --num-fewshot 5 --limit 100
  atoll eval my-model --tasks hellaswag --data Rowan/hellaswag=data/hellaswag \
    --include-path .venv/lib/python3.11/site-packages/lm_eval/tasks)";

constexpr int64_t kMaxWindow = 2048;  // By default: attention costs the square of it.
constexpr int64_t kBatchTokens = 4096;

int64_t window_of(const EvalArguments& arguments, const model::Model& model) {
  const int64_t context = model.config().context();
  if (arguments.window == 0) return std::min(context, kMaxWindow);
  if (arguments.window > context) {
    throw UsageError(fmt::format("--window {} is longer than the model's context of {}",
                                 arguments.window, context));
  }
  return arguments.window;
}

void write_per_token(const std::string& file, const tokenizer::Tokenizer& tokenizer,
                     std::span<const int64_t> ids,
                     std::span<const std::optional<train::TokenScore>> scores) {
  std::string lines;
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t replaced = 0;
    const std::string text = text::repair_utf8(tokenizer.decode_part(ids.subspan(i, 1)), replaced);
    nlohmann::ordered_json line{
        {"id", ids[i]}, {"text", text}, {"logprob", nullptr}, {"rank", nullptr}};
    if (scores[i]) {
      line["logprob"] = scores[i]->log_probability;
      line["rank"] = scores[i]->rank;
    }
    lines += line.dump() + "\n";
  }
  write_file_atomically(file, lines);
}

Measured measure_text(const EvalArguments& arguments, const LoadedModel& loaded) {
  const std::string text = read_text(arguments.text_file);
  std::vector<tokenizer::TokenId> narrow;
  tokenizer::Encoder encoder(loaded.tokenizer);
  encoder.encode(text, tokenizer::SpecialText::kToken, narrow);
  warn_lost(encoder);
  narrow = loaded.tokenizer.with_special_tokens(std::move(narrow));
  const std::vector<int64_t> ids(narrow.begin(), narrow.end());
  if (ids.size() < 2) {
    throw InputError(fmt::format("'{}' has {} tokens, and at least 2 are needed to predict one",
                                 arguments.text_file, ids.size()));
  }
  const int64_t window = window_of(arguments, loaded.model);
  if (window < 2) throw UsageError("--window must be at least 2");
  const SystemClock clock;
  ProgressBar bar("eval", static_cast<double>(ids.size()), clock);
  const auto scores =
      train::score_tokens(loaded.model, ids, window, std::max<int64_t>(1, window / 2),
                          [&](int64_t done) { bar.update(static_cast<double>(done)); });
  double total = 0;
  for (const auto& score : scores) total -= score ? score->log_probability : 0;
  if (!arguments.per_token.empty()) {
    write_per_token(arguments.per_token, loaded.tokenizer, ids, scores);
  }
  return {.loss = total / static_cast<double>(ids.size() - 1),
          .bits_per_byte = total / std::numbers::ln2 / static_cast<double>(text.size()),
          .tokens = std::ssize(ids)};
}

Measured measure_store(const EvalArguments& arguments, const LoadedModel& loaded) {
  const data::TokenStore store = data::TokenStore::open(arguments.store);
  store.require_tokenizer(loaded.tokenizer);
  const auto split = arguments.split == "train" ? data::Split::kTrain : data::Split::kValidation;
  const int64_t window = window_of(arguments, loaded.model);
  const int64_t batch_rows = std::max<int64_t>(1, kBatchTokens / window);
  const data::Batches rows(store, split, {.sequence_length = window, .batch_rows = 1, .seed = 0});
  const int64_t count =
      arguments.rows > 0 ? std::min(arguments.rows, rows.num_rows()) : rows.num_rows();
  const double loss = train::mean_loss(loaded.model, rows, window, count, batch_rows);
  const data::SplitInfo& info = store.info().split(split);
  const double tokens_per_byte = static_cast<double>(info.num_tokens) /
                                 static_cast<double>(std::max<int64_t>(1, info.text_bytes));
  return {.loss = loss,
          .bits_per_byte = loss / std::numbers::ln2 * tokens_per_byte,
          .tokens = count * window};
}

void evaluate(const EvalArguments& arguments) {
  const int num_kinds = static_cast<int>(!arguments.text_file.empty()) +
                        static_cast<int>(!arguments.store.empty()) +
                        static_cast<int>(!arguments.tasks.tasks.empty());
  if (num_kinds != 1) {
    throw UsageError("give either --text FILE or --store STORE or --tasks FILE");
  }
  if (!arguments.tasks.tasks.empty()) {
    evaluate_tasks(arguments.tasks, arguments.model);
    return;
  }
  std::error_code missing;
  if (std::filesystem::equivalent(arguments.text_file, arguments.per_token, missing)) {
    throw UsageError(fmt::format("--per-token would overwrite --text '{}'; choose another file",
                                 arguments.text_file));
  }
  const LoadedModel loaded = load_model(arguments.model);
  const Measured found =
      arguments.store.empty() ? measure_text(arguments, loaded) : measure_store(arguments, loaded);
  const double perplexity = std::exp(found.loss);
  if (arguments.json) {
    const nlohmann::ordered_json json{{"loss", found.loss},
                                      {"perplexity", perplexity},
                                      {"bits_per_byte", found.bits_per_byte},
                                      {"tokens", found.tokens}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("loss {:.4f} nats per token, perplexity {:.3f}, {:.4f} bits per byte, {} tokens\n",
               found.loss, perplexity, found.bits_per_byte, found.tokens);
  }
}

void add_data_folder(const std::string& word, tasks::DataFolders& data) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, std::min(equals, word.size()));
  const std::string folder = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (name.empty() || folder.empty()) {
    throw UsageError(
        fmt::format("--data {}: write NAME=FOLDER, as in Rowan/hellaswag=data/hellaswag", word));
  }
  if (!data.emplace(name, folder).second) {
    throw UsageError(fmt::format("--data {}: the folder of {} is named twice", word, name));
  }
}

/// `others`: options of the other ways to evaluate.
void add_task_options(CLI::App& command, TaskArguments& arguments,
                      const std::vector<CLI::Option*>& others) {
  auto* tasks =
      command
          .add_option("--tasks", arguments.tasks,
                      "task files, or names of tasks, groups or tags; several with commas")
          ->delimiter(',')
          ->allow_extra_args(false);
  for (CLI::Option* other : others) tasks->excludes(other);
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->needs(tasks);
  };
  add("--include-path", arguments.include_paths,
      "a folder where named tasks are looked for; may be given again")
      ->allow_extra_args(false);
  command
      .add_option_function<std::vector<std::string>>(
          "--data",
          [&arguments](const std::vector<std::string>& given) {
            for (const std::string& word : given) add_data_folder(word, arguments.data);
          },
          "NAME=FOLDER: where a data set of the Hub lies; may be given again")
      ->needs(tasks)
      ->allow_extra_args(false);
  add("--num-fewshot", arguments.num_fewshot,
      "examples before each question (default: as the task says; a task that says 0 keeps it)")
      ->check(whole_number<int64_t>(0, 1'000'000));
  add("--limit", arguments.limit, "only the first documents of each task, so many")
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  add("--batch-size", arguments.batch_rows, "texts read at a time (default: about 4096 tokens)")
      ->check(whole_number<int64_t>(1, 1'000'000));
  add("--bootstrap-iters", arguments.bootstrap_iters,
      "samples, at least 2, for the standard error of perplexity, f1 and mcc; 0: no standard "
      "errors "
      "(default: 100000)")
      ->check(whole_number<int64_t>(0, 100'000'000))
      ->check(CLI::Validator(
          [](const std::string& count) {
            return count == "1" ? std::string("one sample has no deviation") : std::string();
          },
          ""));
  add("--output", arguments.output, "write the results file of lm-evaluation-harness");
  add("--log-samples", arguments.log_samples,
      "write a JSON line per document: what was asked, likelihoods, scores");
}

}  // namespace

void add_eval_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("eval", "Measure a model: its loss on text, its scores on tasks");
  auto arguments = std::make_shared<EvalArguments>();
  add_model_arguments(*command, arguments->model);
  auto* text = command->add_option("--text", arguments->text_file,
                                   "a text file (UTF-8); - is standard input");
  auto* store =
      command->add_option("--store", arguments->store, "a token store made by `atoll data pack`")
          ->excludes(text);
  command->add_option("--split", arguments->split, "of the store (default: validation)")
      ->needs(store)
      ->check(CLI::IsMember({"train", "validation"}));
  command
      ->add_option("--rows", arguments->rows, "of the store, spread evenly over it (default: all)")
      ->needs(store)
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  command
      ->add_option(
          "--window", arguments->window,
          "tokens read at a time (default: the model's context; at most 2048 but for tasks)")
      ->check(whole_number<int64_t>(2, int64_t{1} << 40));
  add_task_options(*command, arguments->tasks, {text, store});
  command->add_option("--per-token", arguments->per_token, "write a JSON line per token")
      ->needs(text);
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kFooter);
  command->callback([arguments, command] {
    arguments->tasks.json = arguments->json;
    arguments->tasks.max_length = arguments->window;
    const auto check = [&](const char* option, const std::string& file) {
      if (command->count(option) > 0) require_output_file(file, option);
    };
    check("--per-token", arguments->per_token);
    check("--output", arguments->tasks.output);
    check("--log-samples", arguments->tasks.log_samples);
    if (!arguments->tasks.output.empty() &&
        arguments->tasks.output == arguments->tasks.log_samples) {
      throw UsageError("--output and --log-samples name the same file");
    }
    evaluate(*arguments);
  });
}

}  // namespace atl::cli
