#include "atoll/data/added_tokens.h"

#include <algorithm>

namespace atl::data {

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() != b.content.size() ? a.content.size() > b.content.size() : a.id < b.id;
  });
  for (const AddedToken& token : tokens_) {
    const char first = token.content.front();
    starts_[static_cast<uint8_t>(first)] = true;
    if (only_start_.find(first) == std::string::npos) only_start_ += first;
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from,
                                                 SpecialText special) const {
  if (tokens_.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    if (only_start_.size() == 1) {
      at = text.find(only_start_.front(), at);  // memchr: the common case at memory speed.
      if (at == std::string_view::npos) return {};
    } else if (!starts_[static_cast<uint8_t>(text[at])]) {
      continue;
    }
    for (const AddedToken& token : tokens_) {
      if (token.special && special == SpecialText::kPlain) continue;
      if (text.substr(at, token.content.size()) == token.content) {
        return {at, token.content.size(), token.id};
      }
    }
  }
  return {};
}

}  // namespace atl::data
