#include "atoll/decoding/ngram_draft.h"

#include <algorithm>

namespace atl::decoding {

NgramDraft ngram_draft(std::span<const int64_t> tokens, int64_t max) {
  const int64_t length = std::ssize(tokens);
  int64_t best = NgramDraft::kLeastMatched - 1;
  int64_t place = -1;  // Behind the best match.
  for (int64_t end = length - 1;
       end >= NgramDraft::kLeastMatched && best < NgramDraft::kMostMatched && max > 0; --end) {
    const int64_t most = std::min(end, NgramDraft::kMostMatched);
    int64_t same = 0;
    while (same < most && tokens[static_cast<size_t>(end - 1 - same)] ==
                              tokens[static_cast<size_t>(length - 1 - same)]) {
      ++same;
    }
    if (same <= best) continue;
    best = same;
    place = end;
  }
  if (place < 0) return {};
  const int64_t count = std::min(max, length - place);
  const auto begin = tokens.begin() + place;
  return {.ids = {begin, begin + count}, .num_matched = best};
}

}  // namespace atl::decoding
