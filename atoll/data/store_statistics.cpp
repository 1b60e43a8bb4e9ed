#include "atoll/data/store_statistics.h"

#include <bit>

namespace atl::data {
namespace {

constexpr size_t kMaxSources = 1'000'000;

}  // namespace

void StoreStatistics::add(const Document& document) {
  const int64_t tokens = document.end - document.begin;
  const auto bucket = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(tokens)) - 1);
  if (by_length.size() <= bucket) by_length.resize(bucket + 1);
  by_length[bucket].add(tokens);
  const bool is_full = by_source.size() >= kMaxSources && !by_source.contains(document.source);
  (is_full ? other_sources : by_source[document.source]).add(tokens);
}

StoreStatistics statistics_of(const TokenStore& store) {
  StoreStatistics statistics;
  for (const Split split : kSplits) {
    store.for_each_document(split, [&](const Document& row) { statistics.add(row); });
  }
  return statistics;
}

}  // namespace atl::data
