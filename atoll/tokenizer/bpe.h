#pragma once
// Byte-pair merging of one word (Sennrich et al. 2016): again and again the neighbours with the
// lowest rank become one token, the leftmost first. Short words scan, long ones keep a heap, so a
// word of a megabyte costs n log n.
//
// MergeTable is immutable once filled and may be shared; BpeScratch belongs to one thread.
#include <cstdint>
#include <vector>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

/// (left, right) -> (rank, merged token): a hash table probed in line, at most half full.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNone;
    TokenId id = 0;
  };
  static constexpr uint32_t kNone = 0xffffffff;

  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t num_merges);
  /// A pair that comes twice keeps its later rank, as in `tokenizers`.
  void insert(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const {
    const uint64_t key = make_key(left, right);
    for (size_t slot = (key * kHashFactor) >> shift_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {};
    }
  }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static constexpr uint64_t kHashFactor = 0x9E3779B97F4A7C15U;
  static uint64_t make_key(TokenId left, TokenId right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

/// Memory that merging long words reuses.
class BpeScratch {
 public:
  /// Merges `count` tokens in place; returns how many are left.
  size_t merge(const MergeTable& table, TokenId* tokens, size_t count);

 private:
  struct Node {
    TokenId id;
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    TokenId left, right;  // What stood there when the candidate was noted: else it is stale.
    TokenId merged;
  };
  size_t merge_long(const MergeTable& table, TokenId* tokens, size_t count);
  void note(const MergeTable& table, int32_t position);

  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace atl::tokenizer
