#pragma once
// Which texts are read behind a beginning that they share, so that it is read once: a context with
// four endings, or the examples before many questions. Pure.
#include <cstdint>
#include <span>
#include <vector>

namespace atl::serve {

/// The texts from `begin` to `end` share their first `num_shared` ids, and each has more; one text
/// alone shares none.
struct SharedTexts {
  size_t begin = 0;
  size_t end = 0;
  int64_t num_shared = 0;

  /// Tokens that are read.
  int64_t num_read(std::span<const std::vector<int64_t>> texts) const;
};

/// Groups of neighbours that leave the fewest tokens to read, in their order. `texts` are sorted,
/// and none is empty.
std::vector<SharedTexts> share(std::span<const std::vector<int64_t>> texts);

}  // namespace atl::serve
