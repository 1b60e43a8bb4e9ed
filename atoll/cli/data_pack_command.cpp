#include "atoll/cli/data_pack_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/number.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/corpus_options.h"
#include "atoll/cli/store_report.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/merge.h"
#include "atoll/data/pack.h"

namespace atl::cli {
namespace {

constexpr int64_t kMaxShards = 1'000'000;
constexpr int64_t kMaxThreads = 1024;

struct PackArguments {
  data::CorpusOptions corpus;
  data::PackOptions pack;
  std::string tokenizer;
  std::string out;
  std::string shard;
  std::string chat_template;
  bool chats = false;
  bool json = false;
};

/// "3/8" is the fourth of eight.
data::Shard parse_shard(const std::string& text) {
  data::Shard shard;
  const size_t slash = std::min(text.find('/'), text.size() - 1);
  shard.index = number_in<int64_t>(std::string_view(text).substr(0, slash)).value_or(-1);
  shard.count = number_in<int64_t>(std::string_view(text).substr(slash + 1)).value_or(-1);
  if (shard.index >= 0 && shard.index < shard.count && shard.count <= kMaxShards) return shard;
  throw UsageError(fmt::format("--shard: '{}' is no I/N, such as 0/8 to 7/8 (I from 0, N up to {})",
                               text, kMaxShards));
}

/// What packing took: wall time, and the rate for each second that a core was busy.
struct Speed {
  double seconds = 0;
  double core_seconds = 0;
};

nlohmann::ordered_json pack_json(const data::PackReport& report, const Speed& speed) {
  const auto num_tokens =
      static_cast<double>(report.info.train.num_tokens + report.info.validation.num_tokens);
  nlohmann::ordered_json json = store_json(report.info);
  json["replaced"] = report.num_replaced;
  json["without_token"] = report.num_without_token;
  json["left_out"] = report.left_out.files.size();
  json["threads"] = report.num_threads;
  json["seconds"] = speed.seconds;
  json["tokens_per_s"] = num_tokens / speed.seconds;
  json["tokens_per_core_s"] = num_tokens / speed.core_seconds;
  return json;
}

void pack(const PackArguments& arguments) {
  const SystemClock clock;
  watch_interrupts();  // Ctrl-C removes the draft of the store.
  data::PackOptions options = arguments.pack;
  if (!arguments.shard.empty()) options.shard = parse_shard(arguments.shard);
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(arguments.tokenizer);
  data::CorpusOptions from = arguments.corpus;
  if (arguments.chats) {
    if (from.inputs.empty()) throw UsageError("--chats: name the .jsonl files with the chats");
    from.chats = std::make_shared<const tokenizer::ChatTemplate>(
        tokenizer::ChatTemplate::beside(arguments.tokenizer, arguments.chat_template));
  }
  const data::Corpus corpus(std::move(from));
  data::PackReport report;
  const Time start = clock.now();
  const double cores_before = process_cpu_seconds();
  {
    ProgressBar bar("packing", static_cast<double>(corpus.total_bytes()), clock);
    report =
        data::pack(corpus, tokenizer, arguments.out, options, [&](const data::PackProgress& done) {
          const double rate =
              static_cast<double>(done.num_tokens) / std::max(seconds(clock.now() - start), 1e-9);
          bar.update(static_cast<double>(done.bytes_done), format_count(rate) + " tokens/s");
        });
    bar.update(static_cast<double>(corpus.total_bytes()));
  }
  const Speed speed{.seconds = std::max(seconds(clock.now() - start), 1e-9),
                    .core_seconds = std::max(process_cpu_seconds() - cores_before, 1e-9)};
  warn_replaced(report.num_replaced);
  warn_without_token(report.num_without_token);
  fmt::print(stderr, "{}", data::describe(report.left_out));
  const data::StoreInfo& info = report.info;
  if (info.train.num_documents + info.validation.num_documents == 0) {
    fmt::print(stderr,
               "atoll: shard {} is empty: compressed files are not cut, each is in the shard that "
               "it begins in\n",
               arguments.shard);
  } else if (info.validation.num_documents == 0 && options.validation_share > 0) {
    fmt::print(stderr,
               "atoll: no document fell to validation; raise --validation-share or, for one text "
               "file, lower --document-bytes\n");
  }
  const nlohmann::ordered_json json = pack_json(report, speed);
  if (arguments.json) {
    fmt::print("{}\n", one_line(json));
    return;
  }
  print_store(arguments.out, info);
  fmt::print("  speed:       {} tokens/s on {} threads, {} for each core's second\n",
             format_count(json["tokens_per_s"].get<double>()), report.num_threads,
             format_count(json["tokens_per_core_s"].get<double>()));
}

struct MergeArguments {
  data::StoreTarget target;
  std::vector<std::string> stores;
  bool json = false;
};

void merge(const MergeArguments& arguments) {
  const SystemClock clock;
  watch_interrupts();
  std::vector<data::TokenStore> stores;
  int64_t num_tokens = 0;
  for (const std::string& store : arguments.stores) {
    stores.push_back(data::TokenStore::open(store));
    for (const data::Split split : data::kSplits) num_tokens += stores.back().num_tokens(split);
  }
  data::StoreInfo info;
  {
    ProgressBar bar("merging", static_cast<double>(num_tokens), clock);
    info = data::merge_stores(std::move(stores), arguments.target, [&](int64_t tokens_done) {
      bar.update(static_cast<double>(tokens_done));
    });
  }
  report_store(arguments.target.folder.string(), info, arguments.json);
}

}  // namespace

void add_data_pack(CLI::App& data) {
  CLI::App* command = data.add_subcommand("pack", "Turn text into a token store");
  const auto arguments = std::make_shared<PackArguments>();
  add_corpus_options(*command, arguments->corpus);
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_option("--out", arguments->out, "The folder to make")->required();
  command
      ->add_option("--validation-share", arguments->pack.validation_share,
                   "Share of the documents kept for validation, chosen by a hash of their text")
      ->capture_default_str();
  command
      ->add_option("--threads", arguments->pack.num_threads,
                   "Threads that encode; 0: as many as there are cores. The store is the same")
      ->capture_default_str()
      ->check(whole_number<int64_t>(0, kMaxThreads));
  CLI::Option* chats = command->add_flag(
      "--chats", arguments->chats,
      "Each line of the .jsonl files is a chat: a list of messages, or an object with "
      "\"messages\"; the text is what the chat template beside the tokenizer makes of it");
  chats->excludes(command->get_option("--field"));
  command
      ->add_option("--template", arguments->chat_template,
                   "Another template: a file, or chatml, llama3, plain")
      ->needs(chats);
  command->add_option("--shard", arguments->shard,
                      "I/N, I from 0: pack this part of N alone, for 'atoll data merge'");
  command->add_flag("--overwrite", arguments->pack.overwrite, "Replace the store at --out");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Example: atoll data pack corpus.jsonl.zst --tokenizer tokenizer.json --out store\n"
      "         atoll data pack chats.jsonl --chats --tokenizer model.gguf --out store\n"
      "Many machines, each with one part, as in a Slurm array (docs/operations.md):\n"
      "  atoll data pack corpus/ --tokenizer tokenizer.json --shard 3/64 --out shard-3");
  command->callback([arguments] { pack(*arguments); });
}

void add_data_merge(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "merge", "Make one token store of the shards of a corpus, or of several stores");
  const auto arguments = std::make_shared<MergeArguments>();
  command->add_option("out", arguments->target.folder, "The folder to make")->required();
  command->add_option("stores", arguments->stores, "The token stores, shards in any order")
      ->required();
  command->add_flag("--overwrite", arguments->target.overwrite, "Replace the store at OUT");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "The shards of a corpus give the same store, byte for byte, as packing it in one piece.\n"
      "Example: atoll data merge store shard-*");
  command->callback([arguments] { merge(*arguments); });
}

}  // namespace atl::cli
