#include "atoll/cli/data_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/cli/data_exchange_command.h"
#include "atoll/cli/data_mix_command.h"
#include "atoll/cli/data_order_command.h"
#include "atoll/cli/data_pack_command.h"
#include "atoll/cli/data_verify_command.h"
#include "atoll/cli/store_report.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/batches.h"
#include "atoll/text/utf8.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;

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

/// Rows as people and JSON see them; tables are read once for each store.
class RowPrinter {
 public:
  RowPrinter(const data::Mixture& mixture, data::Split split, int64_t length)
      : tokenizer_(tokenizer::Tokenizer::load(mixture.tokenizer_file())),
        split_(split),
        length_(length),
        is_mixed_(mixture.stores().size() > 1) {}

  Json json(int64_t number, const data::RowPlace& place) {
    const data::TokenStore& store = *place.store;
    const auto [found, is_new] = tables_.try_emplace(&store);
    if (is_new) found->second = store.documents(split_);
    const int64_t begin = place.row * length_;
    std::vector<int64_t> ids(static_cast<size_t>(length_));
    store.read(split_, begin, ids);
    Json documents = Json::array();
    for (const data::Document& document : overlapping(found->second, begin, begin + length_)) {
      documents.push_back({{"id", document.id},
                           {"source", document.source},
                           {"location", document.location},
                           {"begin", document.begin},
                           {"end", document.end}});
    }
    int64_t num_cut = 0;  // A row may begin or end inside a character.
    std::string text = text::repair_utf8(tokenizer_.decode_part(ids), num_cut);
    Json row = {{"row", number}};
    if (is_mixed_) {
      row["store"] = store.folder().string();
      row["row_of_store"] = place.row;
    }
    row.update(Json{{"begin", begin},
                    {"end", begin + length_},
                    {"documents", std::move(documents)},
                    {"ids", ids},
                    {"text", std::move(text)}});
    return row;
  }

 private:
  tokenizer::Tokenizer tokenizer_;
  data::Split split_;
  int64_t length_;
  bool is_mixed_;
  std::map<const data::TokenStore*, std::vector<data::Document>> tables_;
};

void batch(const BatchArguments& arguments) {
  const data::Mixture mixture = data::Mixture::open(arguments.store);
  const data::Split split = arguments.validation ? data::Split::kValidation : data::Split::kTrain;
  const data::Batches batches(mixture, split, arguments.batch);
  RowPrinter printer(mixture, split, arguments.batch.sequence_length);
  Json rows = Json::array();
  for (const int64_t row : batches.rows(arguments.step)) {
    rows.push_back(printer.json(row, batches.place(row)));
  }
  const std::optional<int64_t> pass = batches.pass(arguments.step);
  if (arguments.json) {
    fmt::print("{}\n", one_line({{"step", arguments.step},
                                 {"pass", pass ? Json(*pass) : Json()},
                                 {"rows", std::move(rows)}}));
    return;
  }
  fmt::print("step {}{}: {} of {} rows\n", arguments.step,
             pass ? fmt::format(", pass {}", *pass) : "", rows.size(), batches.num_rows());
  for (const Json& row : rows) {
    fmt::print("\n--- row {}: tokens {} to {}", row["row"].get<int64_t>(),
               row["begin"].get<int64_t>(), row["end"].get<int64_t>());
    if (row.contains("store")) fmt::print(" of {}", row["store"].get<std::string>());
    for (const Json& document : row["documents"]) {
      fmt::print(", {}", document["id"].get<std::string>());
    }
    fmt::print("\n{}\n", row["text"].get<std::string>());
  }
}

void add_batch(CLI::App& data) {
  CLI::App* command =
      data.add_subcommand("batch", "Show what a training step reads: rows, documents, text");
  const auto arguments = std::make_shared<BatchArguments>();
  command->add_option("store", arguments->store, "The token store, or a mixture")->required();
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

}  // namespace

void add_data_command(CLI::App& app) {
  CLI::App* data =
      app.add_subcommand("data", "Pack text into token stores, look into them, verify data orders");
  data->require_subcommand(1);
  add_data_pack(*data);
  add_data_merge(*data);
  add_data_mix(*data);
  add_data_info(*data);
  add_batch(*data);
  add_data_verify(*data);
  add_data_order(*data);
  add_data_import(*data);
  add_data_export(*data);
}

}  // namespace atl::cli
