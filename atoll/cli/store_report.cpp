#include "atoll/cli/store_report.h"

#include <fmt/format.h>

#include <algorithm>
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

namespace {

constexpr size_t kShownSources = 10;     // For people.
constexpr size_t kListedSources = 1000;  // In JSON.

using NamedCounts = std::pair<std::string, data::DocumentCounts>;

/// The sources with the most tokens first.
std::vector<NamedCounts> largest_sources(const data::StoreStatistics& statistics) {
  std::vector<NamedCounts> sources(statistics.by_source.begin(), statistics.by_source.end());
  std::sort(sources.begin(), sources.end(), [](const NamedCounts& a, const NamedCounts& b) {
    return std::pair(-a.second.num_tokens, a.first) < std::pair(-b.second.num_tokens, b.first);
  });
  return sources;
}

Json counts_json(const data::DocumentCounts& counts) {
  return {{"documents", counts.num_documents}, {"tokens", counts.num_tokens}};
}

/// Bytes of text for each token that is not end-of-text; null where there is none.
Json bytes_per_token(const data::StoreInfo& info) {
  int64_t tokens = 0;
  int64_t bytes = 0;
  for (const data::Split which : data::kSplits) {
    const data::SplitInfo& split = info.split(which);
    tokens += split.num_tokens - split.num_documents;
    bytes += split.text_bytes;
  }
  return tokens > 0 ? Json(static_cast<double>(bytes) / static_cast<double>(tokens)) : Json();
}

Json contents_json(const data::StoreInfo& info, const data::StoreStatistics& statistics) {
  Json json = store_json(info);
  json["bytes_per_token"] = bytes_per_token(info);
  Json& lengths = json["length_histogram"] = Json::array();
  for (size_t bucket = 0; bucket < statistics.by_length.size(); ++bucket) {
    Json row = {{"from", int64_t{1} << bucket}, {"below", int64_t{1} << (bucket + 1)}};
    row.update(counts_json(statistics.by_length[bucket]));
    lengths.push_back(std::move(row));
  }
  const std::vector<NamedCounts> sources = largest_sources(statistics);
  json["num_sources"] = sources.size();
  Json& list = json["by_source"] = Json::array();
  data::DocumentCounts others = statistics.other_sources;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i < kListedSources) {
      Json row = {{"source", sources[i].first}};
      row.update(counts_json(sources[i].second));
      list.push_back(std::move(row));
    } else {
      others.num_documents += sources[i].second.num_documents;
      others.num_tokens += sources[i].second.num_tokens;
    }
  }
  json["other_sources"] = counts_json(others);
  return json;
}

void print_lengths(const std::vector<data::DocumentCounts>& by_length) {
  constexpr int64_t kBarWidth = 40;
  int64_t most = 1;
  for (const data::DocumentCounts& bucket : by_length) {
    most = std::max(most, bucket.num_documents);
  }
  fmt::print("  documents by length, end-of-text included:\n");
  for (size_t bucket = 0; bucket < by_length.size(); ++bucket) {
    const int64_t count = by_length[bucket].num_documents;
    const int64_t width = (count * kBarWidth + most - 1) / most;  // Any document shows.
    fmt::print("    {:>7} tokens on: {:<{}} {}\n",
               format_count(static_cast<double>(int64_t{1} << bucket)),
               std::string(static_cast<size_t>(width), '#'), kBarWidth, count);
  }
}

}  // namespace

void report_contents(const std::string& folder, const data::StoreInfo& info,
                     const data::StoreStatistics& statistics, bool json) {
  if (json) {
    fmt::print("{}\n", one_line(contents_json(info, statistics)));
    return;
  }
  print_store(folder, info);
  if (const Json ratio = bytes_per_token(info); !ratio.is_null()) {
    fmt::print("  text:        {:.2f} bytes for each token\n", ratio.get<double>());
  }
  print_lengths(statistics.by_length);
  const std::vector<NamedCounts> sources = largest_sources(statistics);
  fmt::print("  documents by source, the largest of {}:\n", sources.size());
  for (size_t i = 0; i < std::min(sources.size(), kShownSources); ++i) {
    fmt::print("    {} documents, {} tokens  {}\n", sources[i].second.num_documents,
               format_count(static_cast<double>(sources[i].second.num_tokens)), sources[i].first);
  }
}

}  // namespace atl::cli
