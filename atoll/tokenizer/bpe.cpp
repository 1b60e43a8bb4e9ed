#include "atoll/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "atoll/base/check.h"

namespace atl::tokenizer {
namespace {

constexpr size_t kShortWord = 48;  // Above it a heap beats scanning.

/// The pair of tokens i and i+1 has ranks[i] and would become results[i].
size_t merge_short(const MergeTable& table, TokenId* tokens, size_t count) {
  uint32_t ranks[kShortWord];
  TokenId results[kShortWord];
  const auto look_up = [&](size_t i) {
    const MergeTable::Merge merge = table.find(tokens[i], tokens[i + 1]);
    ranks[i] = merge.rank;
    results[i] = merge.id;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == MergeTable::kNone) break;
    tokens[best] = results[best];
    const size_t after = count - best - 2;  // Tokens right of the merged pair.
    std::memmove(tokens + best + 1, tokens + best + 2, after * sizeof(TokenId));
    std::memmove(ranks + best + 1, ranks + best + 2, after * sizeof(uint32_t));
    std::memmove(results + best + 1, results + best + 2, after * sizeof(TokenId));
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

}  // namespace

MergeTable::MergeTable(size_t num_merges) {
  const size_t size = std::bit_ceil(std::max<size_t>(2 * num_merges, 16));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = make_key(left, right);
  size_t slot = (key * kHashFactor) >> shift_;
  for (size_t probes = 0; slots_[slot].key != kEmpty && slots_[slot].key != key; ++probes) {
    ATOLL_CHECK(probes < slots_.size());
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = {key, merge};
}

size_t BpeScratch::merge(const MergeTable& table, TokenId* tokens, size_t count) {
  return count <= kShortWord ? merge_short(table, tokens, count) : merge_long(table, tokens, count);
}

void BpeScratch::note(const MergeTable& table, int32_t position) {
  const Node& node = nodes_[static_cast<size_t>(position)];
  if (node.next < 0) return;
  const TokenId right = nodes_[static_cast<size_t>(node.next)].id;
  const MergeTable::Merge merge = table.find(node.id, right);
  if (merge.rank == MergeTable::kNone) return;
  heap_.push_back({merge.rank, static_cast<uint32_t>(position), node.id, right, merge.id});
}

size_t BpeScratch::merge_long(const MergeTable& table, TokenId* tokens, size_t count) {
  ATOLL_CHECK(count < (size_t{1} << 31));
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  nodes_.clear();
  heap_.clear();
  for (size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int32_t>(i);
    nodes_.push_back({tokens[i], at - 1, i + 1 < count ? at + 1 : -1});
  }
  for (size_t i = 0; i + 1 < count; ++i) note(table, static_cast<int32_t>(i));
  std::make_heap(heap_.begin(), heap_.end(), later);

  constexpr TokenId kGone = -1;
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Node& left = nodes_[best.position];
    if (left.id != best.left || left.next < 0) continue;
    Node& right = nodes_[static_cast<size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = kGone;
    const auto position = static_cast<int32_t>(best.position);
    if (left.next >= 0) nodes_[static_cast<size_t>(left.next)].previous = position;
    for (const int32_t first : {left.previous, position}) {
      const size_t before = heap_.size();
      if (first >= 0) note(table, first);
      if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), later);
    }
  }
  size_t left_over = 0;
  for (int32_t at = 0; at >= 0; at = nodes_[static_cast<size_t>(at)].next) {
    tokens[left_over++] = nodes_[static_cast<size_t>(at)].id;
  }
  return left_over;
}

}  // namespace atl::tokenizer
