#include "atoll/cli/data_order_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/data_verify_command.h"
#include "atoll/cli/store_report.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/recomputed_order.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostShown = 10'000;

struct Arguments {
  data::OrderArguments order;
  std::string out;
  std::vector<std::string> check;
  std::vector<std::string> sha256;
  std::string show;
  bool json = false;
};

struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
};

/// "3:5" or "3".
Rows rows_from(const std::string& text) {
  Rows rows;
  const size_t colon = text.find(':');
  rows.begin = number_in<int64_t>(std::string_view(text).substr(0, colon)).value_or(-1);
  rows.end = rows.begin + 1;
  if (colon != std::string::npos) {
    rows.end = number_in<int64_t>(std::string_view(text).substr(colon + 1)).value_or(-1);
  }
  if (rows.begin < 0 || rows.end > int64_t{1} << 48 || rows.end <= rows.begin ||
      rows.end - rows.begin > kMostShown) {
    throw UsageError(fmt::format("--show takes a row or FIRST:END, at most {} rows, not '{}'",
                                 kMostShown, text));
  }
  return rows;
}

/// The array that a published file holds, by the file's name; the only one whatever its name.
const data::RecomputedOrder::File& counterpart(const data::RecomputedOrder& order,
                                               const std::string& file) {
  if (order.files.size() == 1) return order.files.front();
  const std::string name = fs::path(file).filename().string();
  std::vector<const data::RecomputedOrder::File*> same_kind;
  for (const data::RecomputedOrder::File& candidate : order.files) {
    if (candidate.name == name) return candidate;
    for (const char* kind : {"_doc_idx.npy", "_sample_idx.npy", "_shuffle_idx.npy"}) {
      if (name.ends_with(kind) && candidate.name.ends_with(kind)) same_kind.push_back(&candidate);
    }
  }
  if (same_kind.size() == 1) return *same_kind.front();
  throw UsageError(fmt::format(
      "--check '{}': its name does not say which of the order's {} arrays it is; name it as NeoX "
      "does, such as {}",
      file, order.files.size(), order.files.front().name));
}

/// Where --out puts a file: in a folder under the project's name, else under that name.
std::string out_path(const std::string& out, const data::RecomputedOrder& order,
                     const data::RecomputedOrder::File& file) {
  if (out.ends_with('/') || fs::is_directory(out)) return (fs::path(out) / file.name).string();
  if (order.files.size() == 1) return out;
  throw UsageError(
      fmt::format("the order has {} files: --out must be a folder; end its name with "
                  "'/' to make it",
                  order.files.size()));
}

Json files_json(const data::RecomputedOrder& order, const std::string& out) {
  Json files = Json::array();
  for (const data::RecomputedOrder::File& file : order.files) {
    const data::NpyHeader header = file.map->header();
    Json shape = {header.num_rows};
    if (header.is_matrix) shape.push_back(header.num_columns);
    files.push_back({{"file", out.empty() ? file.name : out_path(out, order, file)},
                     {"dtype", data::number_name(header.type)},
                     {"shape", shape},
                     {"sha256", file.map->sha256()}});
  }
  return files;
}

void write_files(const data::RecomputedOrder& order, const std::string& out) {
  if (out.empty()) return;
  for (const data::RecomputedOrder::File& file : order.files) {
    require_output_file(out_path(out, order, file), "--out");
  }
  for (const data::RecomputedOrder::File& file : order.files) {
    data::write_index_map(*file.map, out_path(out, order, file));
  }
}

void print_for_people(const Arguments& arguments, const Json& result) {
  fmt::print("{}: {} rows\n", arguments.order.kind, result["num_rows"].get<int64_t>());
  for (const Json& file : result["files"]) {
    fmt::print("  sha256 {}  {}{}\n", file["sha256"].get<std::string>(),
               file["file"].get<std::string>(), arguments.out.empty() ? " (not written)" : "");
  }
  for (const std::string& file : arguments.check) fmt::print("  equal: {}\n", file);
  for (const std::string& hash : arguments.sha256) fmt::print("  found: {}\n", hash);
  if (!result.contains("rows")) return;
  for (const Json& row : result["rows"]) fmt::print("{}\n", one_line(row));
}

void run(const Arguments& arguments) {
  const Rows rows = arguments.show.empty() ? Rows{} : rows_from(arguments.show);
  const bool is_neox = arguments.order.kind == "neox";
  const data::RecomputedOrder order =
      is_neox ? data::recompute_neox(arguments.order) : data::recompute_olmo(arguments.order);
  Json result = {{"kind", arguments.order.kind},
                 {"num_rows", order.num_rows},
                 {"files", files_json(order, arguments.out)}};
  for (const std::string& file : arguments.check) {
    data::compare_index_map(*counterpart(order, file).map, file);
  }
  std::vector<NamedHash> hashes;
  for (const Json& file : result["files"]) {
    hashes.push_back({file["file"].get<std::string>(), file["sha256"].get<std::string>()});
  }
  for (const std::string& wanted : arguments.sha256) require_hash(wanted, hashes);
  if (!arguments.check.empty()) result["equal"] = arguments.check;
  if (!arguments.show.empty()) {
    Json shown = Json::array();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      Json json = {{"row", row}};
      json.update(order.row(row));
      shown.push_back(std::move(json));
    }
    result["rows"] = std::move(shown);
  }
  write_files(order, arguments.out);  // Behind all checks: it may replace what was checked.
  if (arguments.json) {
    fmt::print("{}\n", one_line(result));
  } else {
    print_for_people(arguments, result);
  }
}

/// An option that the kind has no use for is refused, not ignored.
struct OwnedOption {
  const char* name;
  std::vector<std::string> kinds;
};

void require_options_of_kind(const CLI::App& command, const std::string& kind) {
  const std::vector<OwnedOption> owned = {
      {"--samples", {"neox"}},
      {"--split", {"neox"}},
      {"--part", {"neox"}},
      {"--weights", {"neox"}},
      {"--documents", {"neox"}},
      {"--tokens", {"neox"}},
      {"--old-names", {"neox"}},
      {"--num-rows", {"olmo", "olmo-core"}},
      {"--dtype", {"olmo", "olmo-core"}},
      {"--epoch", {"olmo", "olmo-core"}},
      {"--world-size", {"olmo"}},
      {"--drop-last", {"olmo"}},
      {"--chunk-rows", {"olmo-core"}},
      {"--batch-rows", {"olmo-core"}},
  };
  const auto given = [&](const char* name) { return command.get_option(name)->count() > 0; };
  for (const OwnedOption& option : owned) {
    const bool fits =
        std::find(option.kinds.begin(), option.kinds.end(), kind) != option.kinds.end();
    if (fits || !given(option.name)) continue;
    throw UsageError(fmt::format("{} does not go with --kind {}", option.name, kind));
  }
  const auto exclude = [&](const char* one, const char* other, const char* why) {
    if (given(one) && given(other)) {
      throw UsageError(fmt::format("{} does not go with {}: {}", one, other, why));
    }
  };
  exclude("--split", "--weights", "NeoX blends whole stores");
  exclude("--split", "--documents", "the counts are those of the part");
  if (kind != "neox" && given("--num-rows")) {
    exclude("--num-rows", "--dtype", "there are no files to read");
    exclude("--num-rows", "--sequence-length", "there are no files to read");
  }
}

void add_neox_options(CLI::App& command, data::OrderArguments& order) {
  const std::string group = "NeoX (Megatron stores)";
  command.add_option("--samples", order.samples, "Rows asked for: training steps times batch size")
      ->check(whole_number<int64_t>(1, int64_t{1} << 40))
      ->group(group);
  command.add_option("--split", order.split, "How documents are dealt to train, valid and test")
      ->capture_default_str()
      ->group(group);
  command.add_option("--part", order.part, "train, valid or test")
      ->capture_default_str()
      ->check(CLI::IsMember({"train", "valid", "test"}))
      ->group(group);
  command
      .add_option("--weights", order.weights,
                  "Blend several stores, as 0.7,0.3: one for each; NeoX then asks for half a per "
                  "cent more rows and calls the parts train_0, train_1, ...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--documents", order.documents,
                  "Instead of a store: how many documents it has (gives no sample_idx)")
      ->check(whole_number<int64_t>(1, int64_t{1} << 31))
      ->group(group);
  command.add_option("--tokens", order.tokens, "Instead of a store: how many tokens it has")
      ->check(whole_number<int64_t>(2, int64_t{1} << 60))
      ->group(group);
  command
      .add_flag("--old-names", order.old_names,
                "Names without _packedpi_ac, as older versions gave (Pythia's)")
      ->group(group);
}

void add_olmo_options(CLI::App& command, data::OrderArguments& order) {
  const std::string group = "OLMo and OLMo-core (raw token files)";
  command
      .add_option("--num-rows", order.num_rows,
                  "Instead of token files: how many rows (\"instances\") they have")
      ->check(whole_number<int64_t>(1, int64_t{0xfffffffe}))
      ->group(group);
  command.add_option("--dtype", order.dtype, "Of the token files: uint16 or uint32")
      ->check(CLI::IsMember({"uint16", "uint32"}))
      ->group(group);
  command
      .add_option("--epoch", order.epoch,
                  "Which epoch; OLMo counts from 0, OLMo-core from 1 (default: the first)")
      ->check(whole_number<int64_t>(0, int64_t{1} << 32))
      ->group(group);
  command
      .add_option("--world-size", order.world_size,
                  "OLMo: ranks of the run; the order is made a multiple of it")
      ->capture_default_str()
      ->check(whole_number<int64_t>(1, int64_t{1} << 24))
      ->group(group);
  command
      .add_flag("--drop-last", order.drop_last,
                "OLMo: cut the order to that multiple; else it is filled up from its beginning")
      ->group(group);
  command
      .add_option("--chunk-rows", order.chunk_rows,
                  "OLMo-core: rows that stay together (its chunk_size)")
      ->capture_default_str()
      ->check(whole_number<int64_t>(1, int64_t{1} << 31))
      ->group(group);
  command
      .add_option("--batch-rows", order.batch_rows,
                  "OLMo-core: rows of a batch, to cut the order to whole batches, as its files "
                  "without _v1 are")
      ->check(whole_number<int64_t>(1, int64_t{1} << 31))
      ->group(group);
}

}  // namespace

void add_data_order(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "order", "Recompute a data order that NeoX, OLMo or OLMo-core published, and check it");
  const auto arguments = std::make_shared<Arguments>();
  data::OrderArguments& order = arguments->order;
  command->add_option("inputs", order.inputs,
                      "NeoX: PREFIX of the .bin and .idx files; OLMo: the token files in order");
  command->add_option("--kind", order.kind, "Whose order: neox, olmo or olmo-core")
      ->required()
      ->check(CLI::IsMember({"neox", "olmo", "olmo-core"}));
  command->add_option("--seed", order.seed, "The seed of the data order")
      ->required()
      ->check(whole_number<uint64_t>(0));
  command
      ->add_option("--sequence-length", order.sequence_length,
                   "Tokens of a row; NeoX's rows have one more")
      ->check(whole_number<int64_t>(1, int64_t{1} << 20));
  command->add_option("--out", arguments->out,
                      "Write the order as the project would: a folder (under the project's names) "
                      "or, for OLMo, a file");
  command
      ->add_option("--check", arguments->check,
                   "A published file to compare with; may be repeated. NeoX's three are told apart "
                   "by their names")
      ->allow_extra_args(false);
  command
      ->add_option("--sha256", arguments->sha256,
                   "A published hash that one of the files must have; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--show", arguments->show, "Print a row, or rows FIRST:END, from 0");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  add_neox_options(*command, order);
  add_olmo_options(*command, order);
  command->footer(
      "Examples:\n"
      "  atoll data order pile --kind neox --samples 146432000 --sequence-length 2048 \\\n"
      "    --seed 1234 --weights 1 --old-names --check pile_train_0_indexmap_147164160ns_2048sl_"
      "1234s_shuffle_idx.npy\n"
      "  atoll data order --kind olmo --num-rows 1000000 --seed 6198 --check global_indices.npy");
  command->callback([arguments, command] {
    require_options_of_kind(*command, arguments->order.kind);
    run(*arguments);
  });
}

}  // namespace atl::cli
