#include "atoll/cli/data_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/corpus_options.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/batches.h"
#include "atoll/data/pack.h"
#include "atoll/data/utf8.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;

Json split_json(const data::SplitInfo& split) {
  return {{"documents", split.num_documents},
          {"tokens", split.num_tokens},
          {"bytes", split.text_bytes}};
}

Json store_json(const data::StoreInfo& info) {
  return {{"documents", info.train.num_documents + info.validation.num_documents},
          {"tokens", info.train.num_tokens + info.validation.num_tokens},
          {"bytes", info.train.text_bytes + info.validation.text_bytes},
          {"vocab_size", info.vocab_size},
          {"dtype", info.type == data::TokenType::kU16 ? "uint16" : "uint32"},
          {"train", split_json(info.train)},
          {"validation", split_json(info.validation)},
          {"validation_share", info.validation_share},
          {"end_of_text", info.end_of_text},
          {"tokenizer_sha256", info.tokenizer_sha256},
          {"sources", info.sources},
          {"digest", info.digest()}};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void print_store(const std::string& folder, const data::StoreInfo& info) {
  fmt::print("{}\n", folder);
  for (const data::Split which : data::kSplits) {
    const data::SplitInfo& split = info.split(which);
    fmt::print("  {:<11} {} documents, {} tokens, {} of text\n", data::split_name(which) + ":",
               split.num_documents, format_count(static_cast<double>(split.num_tokens)),
               format_bytes(static_cast<double>(split.text_bytes)));
  }
  fmt::print("  vocabulary:  {} ids as {}, tokenizer {}...\n", info.vocab_size,
             info.type == data::TokenType::kU16 ? "uint16" : "uint32",
             info.tokenizer_sha256.substr(0, 12));
  for (const std::string& source : info.sources) fmt::print("  source:      {}\n", source);
  fmt::print("  digest:      {}\n", info.digest());
}

struct PackArguments {
  data::CorpusOptions corpus;
  data::PackOptions pack;
  std::string tokenizer;
  std::string out;
  bool json = false;
};

void pack(const PackArguments& arguments) {
  const SystemClock clock;
  watch_interrupts();  // Ctrl-C removes the draft of the store.
  const data::Tokenizer tokenizer = data::Tokenizer::load(arguments.tokenizer);
  const data::Corpus corpus(arguments.corpus);
  data::PackReport report;
  {
    ProgressBar bar("packing", static_cast<double>(corpus.total_bytes()), clock);
    report = data::pack(corpus, tokenizer, arguments.out, arguments.pack,
                        [&](int64_t bytes_done) { bar.update(static_cast<double>(bytes_done)); });
    bar.update(static_cast<double>(corpus.total_bytes()));
  }
  warn_replaced(report.num_replaced);
  if (report.info.validation.num_documents == 0 && arguments.pack.validation_share > 0) {
    fmt::print(stderr,
               "atoll: no document fell to validation; raise --validation-share or, for one text "
               "file, lower --document-bytes\n");
  }
  if (arguments.json) {
    fmt::print("{}\n", dump(store_json(report.info)));
  } else {
    print_store(arguments.out, report.info);
  }
}

struct StoreArguments {
  std::string store;
  bool json = false;
};

void info(const StoreArguments& arguments) {
  const data::TokenStore store = data::TokenStore::open(arguments.store);
  if (arguments.json) {
    fmt::print("{}\n", dump(store_json(store.info())));
  } else {
    print_store(arguments.store, store.info());
  }
}

void verify(const StoreArguments& arguments) {
  const data::TokenStore store = data::TokenStore::open(arguments.store);
  store.verify();
  if (arguments.json) {
    fmt::print("{}\n", dump({{"store", arguments.store}, {"digest", store.info().digest()}}));
  } else {
    fmt::print("{}: intact, digest {}\n", arguments.store, store.info().digest());
  }
}

struct BatchArguments {
  std::string store;
  data::BatchOptions batch{.sequence_length = 256, .batch_rows = 8, .seed = 0};
  int64_t step = 0;
  bool validation = false;
  bool json = false;
};

/// The documents with tokens in [begin, end): a stretch of the table, since it is in order.
std::span<const data::Document> overlapping(const std::vector<data::Document>& table, int64_t begin,
                                            int64_t end) {
  const auto first = std::partition_point(
      table.begin(), table.end(), [&](const data::Document& row) { return row.end <= begin; });
  const auto last = std::partition_point(
      first, table.end(), [&](const data::Document& row) { return row.begin < end; });
  return {first, last};
}

Json row_json(const data::TokenStore& store, data::Split split, int64_t row, int64_t length,
              const data::Tokenizer& tokenizer, const std::vector<data::Document>& table) {
  const int64_t begin = row * length;
  std::vector<int64_t> ids(static_cast<size_t>(length));
  store.read(split, begin, ids);
  Json documents = Json::array();
  for (const data::Document& document : overlapping(table, begin, begin + length)) {
    documents.push_back({{"id", document.id},
                         {"source", document.source},
                         {"location", document.location},
                         {"begin", document.begin},
                         {"end", document.end}});
  }
  int64_t num_cut = 0;  // A row may begin or end inside a character.
  std::string text = data::repair_utf8(tokenizer.decode_part(ids), num_cut);
  return {{"row", row},
          {"begin", begin},
          {"end", begin + length},
          {"documents", std::move(documents)},
          {"ids", ids},
          {"text", std::move(text)}};
}

void batch(const BatchArguments& arguments) {
  const data::TokenStore store = data::TokenStore::open(arguments.store);
  const data::Split split = arguments.validation ? data::Split::kValidation : data::Split::kTrain;
  const data::Batches batches(store, split, arguments.batch);
  const data::Tokenizer tokenizer = data::Tokenizer::load(store.tokenizer_file());
  const std::vector<data::Document> table = store.documents(split);
  Json rows = Json::array();
  for (const int64_t row : batches.rows(arguments.step)) {
    rows.push_back(row_json(store, split, row, arguments.batch.sequence_length, tokenizer, table));
  }
  if (arguments.json) {
    fmt::print("{}\n", dump({{"step", arguments.step},
                             {"pass", batches.pass(arguments.step)},
                             {"rows", std::move(rows)}}));
    return;
  }
  fmt::print("step {}, pass {}: {} of {} rows\n", arguments.step, batches.pass(arguments.step),
             rows.size(), batches.num_rows());
  for (const Json& row : rows) {
    fmt::print("\n--- row {}: tokens {} to {}", row["row"].get<int64_t>(),
               row["begin"].get<int64_t>(), row["end"].get<int64_t>());
    for (const Json& document : row["documents"]) {
      fmt::print(", {}", document["id"].get<std::string>());
    }
    fmt::print("\n{}\n", row["text"].get<std::string>());
  }
}

void add_pack(CLI::App& data) {
  CLI::App* command = data.add_subcommand("pack", "Turn text into a token store");
  const auto arguments = std::make_shared<PackArguments>();
  add_corpus_options(*command, arguments->corpus);
  command->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json")->required();
  command->add_option("--out", arguments->out, "The folder to make")->required();
  command
      ->add_option("--validation-share", arguments->pack.validation_share,
                   "Share of the documents kept for validation, chosen by a hash of their text")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->pack.overwrite, "Replace the store at --out");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer("Example: atoll data pack corpus.jsonl --tokenizer tokenizer.json --out store");
  command->callback([arguments] { pack(*arguments); });
}

void add_batch(CLI::App& data) {
  CLI::App* command =
      data.add_subcommand("batch", "Show what a training step reads: rows, documents, text");
  const auto arguments = std::make_shared<BatchArguments>();
  command->add_option("store", arguments->store, "The token store")->required();
  command->add_option("--step", arguments->step, "The step, from 0")
      ->capture_default_str()
      ->check(whole_number<int64_t>(0));
  command->add_option("--batch-rows", arguments->batch.batch_rows, "Rows of the global batch")
      ->capture_default_str()
      ->check(whole_number<int64_t>(1, int64_t{1} << 40));
  command->add_option("--sequence-length", arguments->batch.sequence_length, "Tokens of a row")
      ->capture_default_str()
      ->check(whole_number<int64_t>(2, int64_t{1} << 40));
  command->add_option("--seed", arguments->batch.seed, "The seed of the order")
      ->capture_default_str()
      ->check(whole_number<uint64_t>(0));
  command->add_flag("--validation", arguments->validation, "Read the validation part");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer("Example: atoll data batch store --step 3 --batch-rows 4 --sequence-length 128");
  command->callback([arguments] { batch(*arguments); });
}

void add_store_command(CLI::App& data, const std::string& name, const std::string& description,
                       void (*run)(const StoreArguments&)) {
  CLI::App* command = data.add_subcommand(name, description);
  const auto arguments = std::make_shared<StoreArguments>();
  command->add_option("store", arguments->store, "The token store")->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(fmt::format("Example: atoll data {} store", name));
  command->callback([arguments, run] { run(*arguments); });
}

}  // namespace

void add_data_command(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Pack text into token stores and look into them");
  data->require_subcommand(1);
  add_pack(*data);
  add_store_command(*data, "info", "What is in a token store", info);
  add_batch(*data);
  add_store_command(*data, "verify", "Read a whole store and check it", verify);
}

}  // namespace atl::cli
