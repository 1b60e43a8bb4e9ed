#include "atoll/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {
namespace {

constexpr size_t kHeadBytes = 8;

size_t pair_index(char first, char second) {
  return static_cast<size_t>(static_cast<uint8_t>(first)) << 8 | static_cast<uint8_t>(second);
}

uint64_t read_head(std::string_view text) {
  uint64_t value = 0;
  std::memcpy(&value, text.data(), std::min(text.size(), kHeadBytes));
  return value;
}

/// Where the character before `at` begins; at > 0.
size_t before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80);
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, SpaceMeaning space)
    : tokens_(std::move(tokens)), space_(space) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() != b.content.size() ? a.content.size() > b.content.size() : a.id < b.id;
  });
  for (const AddedToken& token : tokens_) {
    const std::string_view content = token.content;
    const char first = content.front();
    starts_[static_cast<uint8_t>(first)] = true;
    if (only_start_.find(first) == std::string::npos) only_start_ += first;
    for (int second = 0; content.size() == 1 && second < 256; ++second) {
      pairs_.set(pair_index(first, static_cast<char>(second)));
    }
    if (content.size() > 1) pairs_.set(pair_index(first, content[1]));
    const std::string ones(std::min(content.size(), kHeadBytes), '\xff');
    heads_.push_back({read_head(content), read_head(ones)});
  }
}

bool AddedTokenMatcher::find(std::string_view text, size_t from, Found& found) const {
  if (tokens_.empty()) return false;
  for (size_t at = from; at < text.size(); ++at) {
    if (only_start_.size() == 1) {
      at = text.find(only_start_.front(), at);  // memchr: the common case at memory speed.
      if (at == std::string_view::npos) return false;
    } else if (!starts_[static_cast<uint8_t>(text[at])]) {
      continue;
    }
    if (at + 1 < text.size() && !pairs_[pair_index(text[at], text[at + 1])]) continue;
    if (const AddedToken* token = match_at(text, at)) {
      const size_t end = at + token->content.size();
      found = {.token = token, .match_end = end, .begin = at, .end = end};
      return true;
    }
  }
  return false;
}

const AddedToken* AddedTokenMatcher::match_at(std::string_view text, size_t at) const {
  const std::string_view rest = text.substr(at);
  const uint64_t head = read_head(rest);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if ((head & heads_[i].mask) == heads_[i].value && rest.starts_with(tokens_[i].content)) {
      return &tokens_[i];
    }
  }
  return nullptr;
}

bool AddedTokenMatcher::is_space(uint32_t code_point) const {
  if (code_point == ' ' && space_ == SpaceMeaning::kMark) return false;
  return text::is_space(code_point);
}

/// Whether the token counts where it was found, and how far it reaches. What `done` covers is given
/// out already.
bool AddedTokenMatcher::accept(std::string_view text, SpecialText special, size_t done,
                               Found& found) const {
  const AddedToken& token = *found.token;
  if (token.special && special == SpecialText::kPlain) return false;
  if (token.single_word) {
    const auto is_word_at = [&](size_t at) {
      return text::is_word_char(text::decode_utf8(text.substr(at)).value);
    };
    if (found.begin > 0 && is_word_at(before(text, found.begin))) return false;
    if (found.end < text.size() && is_word_at(found.end)) return false;
  }
  if (token.lstrip) {
    while (found.begin > done) {
      const size_t previous = before(text, found.begin);
      if (!is_space(text::decode_utf8(text.substr(previous)).value)) break;
      found.begin = previous;
    }
  }
  while (token.rstrip && found.end < text.size()) {
    const text::CodePoint next = text::decode_utf8(text.substr(found.end));
    if (!is_space(next.value)) break;
    found.end += next.num_bytes;
  }
  return true;
}

}  // namespace atl::tokenizer
