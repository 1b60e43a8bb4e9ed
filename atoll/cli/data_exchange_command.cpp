#include "atoll/cli/data_exchange_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/store_report.h"
#include "atoll/data/megatron_exchange.h"
#include "atoll/data/olmo_exchange.h"

namespace atl::cli {
namespace {

struct ImportArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string dtype;
  data::StoreTarget target;
  double validation_share = 0;
  bool json = false;
};

bool is_npy(const std::string& file) { return file.ends_with(".npy"); }

data::StoreInfo import_megatron(const ImportArguments& arguments,
                                const tokenizer::Tokenizer& tokenizer) {
  if (arguments.files.size() > 1) throw UsageError("one Megatron store at a time, please");
  if (!arguments.dtype.empty()) throw UsageError("--dtype is for .npy files: an .idx has its own");
  const SystemClock clock;
  const data::MegatronStore from = data::MegatronStore::open(arguments.files.front());
  ProgressBar bar("importing", static_cast<double>(from.index().num_tokens), clock);
  return data::import_megatron(
      from, tokenizer, arguments.target, arguments.validation_share,
      [&](int64_t tokens_done) { bar.update(static_cast<double>(tokens_done)); });
}

data::StoreInfo import_olmo(const ImportArguments& arguments,
                            const tokenizer::Tokenizer& tokenizer) {
  data::TokenType type = data::narrowest_type(tokenizer.vocab_size());
  if (!arguments.dtype.empty()) {
    type = arguments.dtype == "uint16" ? data::TokenType::kU16 : data::TokenType::kU32;
  }
  const SystemClock clock;
  std::vector<data::OlmoFile> files;
  int64_t num_tokens = 0;
  for (const std::string& file : arguments.files) {
    if (!is_npy(file)) {
      throw UsageError(fmt::format("'{}' is no .npy file like '{}'; import one kind at a time",
                                   file, arguments.files.front()));
    }
    for (const data::OlmoFile& other : files) {
      std::error_code missing;
      if (!std::filesystem::equivalent(other.path(), file, missing)) continue;
      throw UsageError(
          fmt::format("'{}' is named twice; its documents would be there twice", file));
    }
    num_tokens += files.emplace_back(file, type).num_tokens();
  }
  ProgressBar bar("importing", static_cast<double>(num_tokens), clock);
  return data::import_olmo(
      files, tokenizer, arguments.target, arguments.validation_share,
      [&](int64_t tokens_done) { bar.update(static_cast<double>(tokens_done)); });
}

void import_store(const ImportArguments& arguments) {
  watch_interrupts();  // Ctrl-C removes the draft of the store.
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(arguments.tokenizer);
  const data::StoreInfo info = is_npy(arguments.files.front())
                                   ? import_olmo(arguments, tokenizer)
                                   : import_megatron(arguments, tokenizer);
  report_store(arguments.target.folder.string(), info, arguments.json);
}

struct ExportArguments {
  std::string store;
  std::string prefix;
  bool validation = false;
  bool overwrite = false;
  bool json = false;
};

void export_store(const ExportArguments& arguments) {
  const SystemClock clock;
  watch_interrupts();
  const data::TokenStore store = data::TokenStore::open(arguments.store);
  const data::Split split = arguments.validation ? data::Split::kValidation : data::Split::kTrain;
  const data::SplitInfo& info = store.info().split(split);
  data::MegatronWriter::Hashes hashes;
  {
    ProgressBar bar("exporting", static_cast<double>(info.num_tokens), clock);
    hashes = data::export_megatron(
        store, split, arguments.prefix, arguments.overwrite,
        [&](int64_t tokens_done) { bar.update(static_cast<double>(tokens_done)); });
  }
  if (arguments.json) {
    fmt::print("{}\n", one_line({{"prefix", arguments.prefix},
                                 {"documents", info.num_documents},
                                 {"tokens", info.num_tokens},
                                 {"idx_sha256", hashes.idx_sha256},
                                 {"bin_sha256", hashes.bin_sha256}}));
    return;
  }
  fmt::print(
      "{0}.bin, {0}.idx: {1} documents, {2} tokens\n  sha256 {3}  {0}.idx\n"
      "  sha256 {4}  {0}.bin\n",
      arguments.prefix, info.num_documents, info.num_tokens, hashes.idx_sha256, hashes.bin_sha256);
}

}  // namespace

void add_data_import(CLI::App& data) {
  CLI::App* command =
      data.add_subcommand("import",
                          "Make a token store of a Megatron store (.bin and .idx) or of OLMo's "
                          "token files (.npy, each with its .csv.gz)");
  const auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("files", arguments->files,
                   "The Megatron store's name, with or without .idx; or .npy files, in their order")
      ->required();
  command
      ->add_option("--dtype", arguments->dtype,
                   "Type of the tokens in .npy files without a header (as OLMo's are): uint16 or "
                   "uint32; none: the narrower that the vocabulary fits in")
      ->check(CLI::IsMember({"uint16", "uint32"}));
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   std::string("What the tokens were made with: ") + kTokenizerHelp)
      ->required();
  command->add_option("--out", arguments->target.folder, "The folder to make")->required();
  command
      ->add_option("--validation-share", arguments->validation_share,
                   "Share of the documents kept for validation, chosen by a hash of their text; 0 "
                   "keeps all documents in their order")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->target.overwrite, "Replace the store at --out");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Example: atoll data import pile_text_document --tokenizer tokenizer.json --out store\n"
      "         atoll data import part-*.npy --tokenizer tokenizer.json --out store");
  command->callback([arguments] { import_store(*arguments); });
}

void add_data_export(CLI::App& data) {
  CLI::App* command =
      data.add_subcommand("export", "Write a token store as a Megatron store (.bin and .idx)");
  const auto arguments = std::make_shared<ExportArguments>();
  command->add_option("store", arguments->store, "The token store")->required();
  command->add_option("prefix", arguments->prefix, "The files' name without .bin and .idx")
      ->required();
  command->add_flag("--validation", arguments->validation,
                    "Write the validation part; else the training part");
  command->add_flag("--overwrite", arguments->overwrite, "Replace files that are there");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer("Example: atoll data export store store_text_document");
  command->callback([arguments] { export_store(*arguments); });
}

}  // namespace atl::cli
