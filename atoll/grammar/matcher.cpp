#include "atoll/grammar/matcher.h"

#include <utility>

#include "atoll/base/check.h"

namespace atl::grammar {

Matcher::Matcher(std::shared_ptr<const TokenMasks> masks)
    : masks_(std::move(masks)),
      places_{std::make_shared<const Place>(Machine(masks_->grammar()).begin())} {}

bool Matcher::advance(TokenId token) {
  const Vocabulary& vocabulary = masks_->vocabulary();
  if (is_done_ || token < 0 || static_cast<size_t>(token) >= vocabulary.size()) return false;
  if (vocabulary.is_end(token)) {
    if (!place().may_end) return false;
    is_done_ = true;
    places_.push_back(places_.back());
  } else {
    const std::string_view bytes = vocabulary.bytes(token);
    if (bytes.empty()) return false;
    Place next = Machine(masks_->grammar()).advance(place(), bytes);
    if (next.tops.empty() && !next.may_end) return false;
    places_.push_back(next == place() ? places_.back()
                                      : std::make_shared<const Place>(std::move(next)));
  }
  if (places_.size() > kMaxRollback + 1) places_.erase(places_.begin());
  ++num_tokens_;
  return true;
}

size_t Matcher::advance(std::span<const TokenId> tokens) {
  size_t count = 0;
  while (count < tokens.size() && advance(tokens[count])) ++count;
  return count;
}

void Matcher::roll_back(size_t count) {
  ATOLL_CHECK(count < places_.size(), "more tokens than are kept");
  if (count > 0) is_done_ = false;
  places_.resize(places_.size() - count);
  num_tokens_ -= count;
}

TokenMask Matcher::mask() const {
  if (is_done_) return TokenMask(masks_->vocabulary().size());
  return masks_->mask(place());
}

}  // namespace atl::grammar
