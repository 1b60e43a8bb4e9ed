#pragma once
// A guess at how a text goes on, from the text itself: what followed when its last tokens were
// there before (prompt lookup, as in Saxena 2023). Who has to wait long for each token has a guess
// verified with it; a wrong one costs a little work and changes nothing.
#include <cstdint>
#include <span>
#include <vector>

namespace atl::decoding {

struct NgramDraft {
  static constexpr int64_t kLeastMatched = 2;
  static constexpr int64_t kMostMatched = 8;

  std::vector<int64_t> ids;
  int64_t num_matched = 0;  // Of the last tokens, from kLeastMatched to kMostMatched.
};

/// At most `max` ids: behind the latest earlier place where the most of the last tokens stand. None
/// where fewer than kLeastMatched do.
NgramDraft ngram_draft(std::span<const int64_t> tokens, int64_t max);

}  // namespace atl::decoding
