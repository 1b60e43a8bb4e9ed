#include "atoll/cli/data_verify_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/progress.h"
#include "atoll/cli/data_mix_command.h"
#include "atoll/cli/store_report.h"
#include "atoll/data/index_map.h"
#include "atoll/data/megatron.h"
#include "atoll/data/mixture.h"
#include "atoll/data/npy.h"
#include "atoll/data/olmo_exchange.h"
#include "atoll/data/store_statistics.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string path;
  std::string tokenizer;
  std::vector<std::string> sha256;
  bool json = false;
};

enum class Kind { kTokenStore, kMegatron, kNumbers };

Kind kind_of(const fs::path& path) {
  if (path.extension() == ".idx" || path.extension() == ".bin") return Kind::kMegatron;
  if (path.extension() == ".npy") return Kind::kNumbers;
  if (fs::is_regular_file(path)) {
    throw InputError(
        fmt::format("'{}' is neither a token store (a folder), a Megatron store (.idx) "
                    "nor a .npy file",
                    path.string()));
  }
  return Kind::kTokenStore;
}

Json megatron_json(const data::MegatronStore& store) {
  const data::MegatronIndex& index = store.index();
  return {{"documents", index.num_documents()},
          {"tokens", index.num_tokens},
          {"bytes", nullptr},  // Of text, which only a tokenizer knows.
          {"vocab_size", nullptr},
          {"dtype", data::number_name(index.type)},
          {"sequences", index.num_sequences()}};
}

void info_of_megatron(const Arguments& arguments) {
  const data::MegatronStore store = data::MegatronStore::open(arguments.path);
  const data::MegatronIndex& index = store.index();
  if (arguments.json) {
    fmt::print("{}\n", one_line(megatron_json(store)));
    return;
  }
  fmt::print("{}\n  {} documents in {} sequences, {} tokens as {}\n", store.idx_path().string(),
             index.num_documents(), index.num_sequences(),
             format_count(static_cast<double>(index.num_tokens)), data::number_name(index.type));
}

/// Of a file with numpy's header; a raw one says nothing of its contents.
void info_of_numbers(const Arguments& arguments) {
  const MappedFile file(arguments.path);
  if (!data::has_npy_magic(file.bytes())) {
    if (arguments.json) {
      fmt::print("{}\n", one_line({{"header", false}, {"file_bytes", file.bytes().size()}}));
    } else {
      fmt::print("{}\n  raw numbers without a header (as OLMo writes them), {} bytes\n",
                 arguments.path, file.bytes().size());
    }
    return;
  }
  const data::NpyHeader header = data::parse_npy_header(file.bytes(), arguments.path);
  if (arguments.json) {
    Json shape = {header.num_rows};
    if (header.is_matrix) shape.push_back(header.num_columns);
    fmt::print("{}\n", one_line({{"header", true},
                                 {"file_bytes", file.bytes().size()},
                                 {"dtype", data::number_name(header.type)},
                                 {"shape", shape}}));
  } else {
    fmt::print("{}\n  {} numbers of {}\n", arguments.path, header.shape(),
               data::number_name(header.type));
  }
}

void info_of_tokens(const Arguments& arguments) {
  const data::Mixture mixture = data::Mixture::open(arguments.path);
  if (mixture.stores().size() > 1) return report_mixture(mixture, arguments.json);
  const data::TokenStore& store = mixture.stores().front();
  report_contents(arguments.path, store.info(), data::statistics_of(store), arguments.json);
}

void info(const Arguments& arguments) {
  switch (kind_of(arguments.path)) {
    case Kind::kMegatron:
      return info_of_megatron(arguments);
    case Kind::kNumbers:
      return info_of_numbers(arguments);
    case Kind::kTokenStore:
      return info_of_tokens(arguments);
  }
}

/// The hashes of a store: its digest, and those of its four files.
std::vector<NamedHash> hashes_of(const data::TokenStore& store) {
  const std::string folder = store.folder().string();
  std::vector<NamedHash> hashes = {{"the digest of " + folder, store.info().digest()}};
  for (const data::Split split : data::kSplits) {
    const data::SplitInfo& info = store.info().split(split);
    const std::string part = folder + "/tokens-" + data::split_name(split);
    hashes.push_back({part + ".npy", info.tokens_sha256});
    hashes.push_back({part + ".csv (unpacked)", info.documents_sha256});
  }
  return hashes;
}

/// A token store, or all stores of a mixture.
void verify_store(const Arguments& arguments) {
  if (!arguments.tokenizer.empty()) {
    throw UsageError("--tokenizer is for Megatron and OLMo files: a token store has its own");
  }
  const data::Mixture mixture = data::Mixture::open(arguments.path);
  std::vector<NamedHash> hashes = {{"the digest of " + arguments.path, mixture.digest()}};
  for (const data::TokenStore& store : mixture.stores()) {
    store.verify();
    for (NamedHash& hash : hashes_of(store)) {
      if (hash.sha256 != hashes.front().sha256) hashes.push_back(std::move(hash));
    }
  }
  for (const std::string& wanted : arguments.sha256) require_hash(wanted, hashes);
  if (arguments.json) {
    Json files = Json::object();
    for (size_t i = 1; i < hashes.size(); ++i) files[hashes[i].name] = hashes[i].sha256;
    fmt::print("{}\n", one_line({{"store", arguments.path},
                                 {"digest", mixture.digest()},
                                 {"sha256", std::move(files)}}));
  } else {
    fmt::print("{}: intact, digest {}\n", arguments.path, mixture.digest());
  }
}

void verify_megatron(const Arguments& arguments) {
  const data::MegatronStore store = data::MegatronStore::open(arguments.path);
  if (!arguments.tokenizer.empty()) {
    store.require_ids_below(tokenizer::Tokenizer::load(arguments.tokenizer).vocab_size());
  }
  const NamedHash idx{store.idx_path().string(), hex(sha256(store.idx_bytes()))};
  const NamedHash bin{store.bin_path().string(), hex(sha256(store.bin_bytes()))};
  for (const std::string& wanted : arguments.sha256) require_hash(wanted, {idx, bin});
  if (arguments.json) {
    Json json = megatron_json(store);
    json["idx_sha256"] = idx.sha256;
    json["bin_sha256"] = bin.sha256;
    fmt::print("{}\n", one_line(json));
    return;
  }
  fmt::print("{}: intact, {} sequences, {} tokens\n", arguments.path, store.index().num_sequences(),
             store.index().num_tokens);
  for (const NamedHash& file : {idx, bin}) fmt::print("  sha256 {}  {}\n", file.sha256, file.name);
}

/// OLMo's tokens and their table.
void verify_olmo(const Arguments& arguments) {
  const int64_t vocab_size = tokenizer::Tokenizer::load(arguments.tokenizer).vocab_size();
  const data::OlmoFile file(arguments.path, data::narrowest_type(vocab_size));
  file.require_ids_below(vocab_size);
  int64_t num_documents = 0;
  file.for_each_document([&](const data::Document&) { ++num_documents; });
  const std::string hash = hex(sha256(MappedFile(arguments.path).bytes()));
  for (const std::string& wanted : arguments.sha256) require_hash(wanted, {{arguments.path, hash}});
  if (arguments.json) {
    fmt::print("{}\n", one_line({{"file", arguments.path},
                                 {"documents", num_documents},
                                 {"tokens", file.num_tokens()},
                                 {"sha256", hash}}));
  } else {
    fmt::print("{}: intact, {} documents, {} tokens, sha256 {}\n", arguments.path, num_documents,
               file.num_tokens(), hash);
  }
}

void verify_numbers(const Arguments& arguments) {
  if (!arguments.tokenizer.empty()) return verify_olmo(arguments);
  const MappedFile file(arguments.path);
  const bool has_header = data::has_npy_magic(file.bytes());
  if (has_header) data::check_index_file(data::NpyFile(arguments.path), arguments.path);
  const std::string hash = hex(sha256(file.bytes()));
  for (const std::string& wanted : arguments.sha256) require_hash(wanted, {{arguments.path, hash}});
  if (arguments.json) {
    fmt::print("{}\n",
               one_line({{"file", arguments.path}, {"header", has_header}, {"sha256", hash}}));
  } else {
    fmt::print("{}: {}, sha256 {}\n", arguments.path,
               has_header ? "intact" : "raw numbers, of which only the hash can be checked", hash);
  }
}

void verify(const Arguments& arguments) {
  switch (kind_of(arguments.path)) {
    case Kind::kMegatron:
      return verify_megatron(arguments);
    case Kind::kNumbers:
      return verify_numbers(arguments);
    case Kind::kTokenStore:
      return verify_store(arguments);
  }
}

}  // namespace

void require_hash(const std::string& wanted, const std::vector<NamedHash>& found) {
  std::string lower = wanted;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  try {
    digest_from_hex(lower);
  } catch (const InputError& error) {
    throw UsageError(fmt::format("--sha256: {}", error.what()));
  }
  std::string those;
  for (const NamedHash& hash : found) {
    if (hash.sha256 == lower) return;
    those += fmt::format("; {} has {}", hash.name, hash.sha256);
  }
  throw InputError(fmt::format("nothing has the SHA-256 {}{}", lower, those));
}

void add_data_info(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "info", "What is in a token store, a mixture, a Megatron store or a .npy file");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("store", arguments->path, "The token store, mixture, FILE.idx or FILE.npy")
      ->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer("Example: atoll data info store");
  command->callback([arguments] { info(*arguments); });
}

void add_data_verify(CLI::App& data) {
  CLI::App* command = data.add_subcommand(
      "verify", "Read a whole token store, mixture, Megatron store or .npy file and check it");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("store", arguments->path, "The token store, mixture, FILE.idx or FILE.npy")
      ->required();
  command
      ->add_option(
          "--sha256", arguments->sha256,
          "What a published hash says: of a store its digest or a file of it, else of the file "
          "(of FILE.idx or its .bin); may be repeated")
      ->allow_extra_args(false);
  command->add_option(
      "--tokenizer", arguments->tokenizer,
      "Of a Megatron store or an OLMo file: all ids must be below its vocabulary; of "
      "the latter the document table is checked too");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "NeoX's index maps are checked by their names: *_shuffle_idx.npy must be a permutation,\n"
      "*_doc_idx.npy must have each document equally often, *_sample_idx.npy must ascend.\n"
      "Example: atoll data verify pile_text_document.idx --tokenizer 20B_tokenizer.json");
  command->callback([arguments] { verify(*arguments); });
}

}  // namespace atl::cli
