#include "atoll/cli/store_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/progress.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;

Json split_json(const data::SplitInfo& split) {
  return {{"documents", split.num_documents},
          {"tokens", split.num_tokens},
          {"bytes", split.text_bytes}};
}

}  // namespace

Json store_json(const data::StoreInfo& info) {
  Json json = {{"documents", info.train.num_documents + info.validation.num_documents},
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
  if (info.shard) json["shard"] = {{"index", info.shard->index}, {"count", info.shard->count}};
  return json;
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
  if (info.shard) {
    fmt::print("  shard:       {} of {} (from 0), for 'atoll data merge'\n", info.shard->index,
               info.shard->count);
  }
  fmt::print("  digest:      {}\n", info.digest());
}

std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void report_store(const std::string& folder, const data::StoreInfo& info, bool json) {
  if (json) {
    fmt::print("{}\n", one_line(store_json(info)));
  } else {
    print_store(folder, info);
  }
}

}  // namespace atl::cli
