#include "atoll/serve/shared_texts.h"

#include <algorithm>

namespace atl::serve {
namespace {

/// What a group must save: it is read in two passes, with a cache.
constexpr int64_t kLeastSaved = 8;

class Grouping {
 public:
  explicit Grouping(std::span<const std::vector<int64_t>> texts) : sums_{0}, common_{0} {
    for (size_t i = 0; i < texts.size(); ++i) {
      sums_.push_back(sums_.back() + std::ssize(texts[i]));
      if (i == 0) continue;
      const auto [a, b] = std::ranges::mismatch(texts[i - 1], texts[i]);
      // One that is the other's beginning keeps a token of its own.
      const int64_t shorter = std::min(std::ssize(texts[i - 1]), std::ssize(texts[i]));
      common_.push_back(std::min<int64_t>(a - texts[i - 1].begin(), shorter - 1));
    }
  }

  /// Adds the best groups of texts [begin, end); returns the tokens to read. What all of them share
  /// is the least that neighbours do; where it is least, they may be parted.
  int64_t add(size_t begin, size_t end) {
    if (end - begin == 1) {
      groups_.push_back({begin, end, 0});
      return sums_[end] - sums_[begin];
    }
    const auto first = common_.begin() + static_cast<ptrdiff_t>(begin);
    const int64_t least =
        *std::min_element(first + 1, common_.begin() + static_cast<ptrdiff_t>(end));
    const size_t mark = groups_.size();
    int64_t parted = 0;
    size_t part = begin;
    for (size_t i = begin + 1; i <= end; ++i) {
      if (i < end && common_[i] > least) continue;
      parted += add(part, i);
      part = i;
    }
    const auto count = static_cast<int64_t>(end - begin);
    const int64_t together = sums_[end] - sums_[begin] - least * (count - 1);
    if (together + kLeastSaved > parted) return parted;
    groups_.resize(mark);
    groups_.push_back({begin, end, least});
    return together;
  }

  std::vector<SharedTexts> take() { return std::move(groups_); }

 private:
  std::vector<int64_t> sums_;    // Of the lengths of all texts before.
  std::vector<int64_t> common_;  // With the text before.
  std::vector<SharedTexts> groups_;
};

}  // namespace

int64_t SharedTexts::num_read(std::span<const std::vector<int64_t>> texts) const {
  int64_t count = num_shared;
  for (size_t i = begin; i < end; ++i) count += std::ssize(texts[i]) - num_shared;
  return count;
}

std::vector<SharedTexts> share(std::span<const std::vector<int64_t>> texts) {
  if (texts.empty()) return {};
  Grouping grouping(texts);
  grouping.add(0, texts.size());
  return grouping.take();
}

}  // namespace atl::serve
