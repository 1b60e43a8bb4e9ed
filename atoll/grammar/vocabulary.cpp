#include "atoll/grammar/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/grammar/kept_masks.h"

namespace atl::grammar {

uint64_t Vocabulary::class_of(uint8_t byte) {
  const auto number = [&]() -> unsigned {
    if (byte >= 0xe0) return byte >= 0xf0 ? 0 : 1;
    if (byte >= 0xc0) return 2;
    if (byte >= 0x80) return 3;
    if (byte >= '0' && byte <= '9') return 4;
    if (byte >= 'a' && byte <= 'z') return 5 + (byte > 'f' ? 1 : 0);  // Hexadecimal or not.
    if (byte >= 'A' && byte <= 'Z') return 7 + (byte > 'F' ? 1 : 0);
    if (byte == '\n' || byte == '\t' || byte == '\r') return 9;
    if (byte < ' ') return 10;
    return byte < '0'   ? 11 + byte - ' '   // 16 of these,
           : byte < 'A' ? 27 + byte - ':'   // 7,
           : byte < 'a' ? 34 + byte - '['   // 6,
                        : 40 + byte - '{';  // and 5.
  }();
  return uint64_t{1} << number;
}

Vocabulary::Vocabulary(std::span<const std::string> tokens, std::vector<TokenId> end_ids)
    : tokens_(tokens.begin(), tokens.end()),
      end_ids_(std::move(end_ids)),
      kept_(std::make_shared<KeptMasks>()) {
  for (const TokenId id : end_ids_) {
    if (id < 0 || static_cast<size_t>(id) >= tokens_.size()) {
      throw InputError(fmt::format("token {} ends texts, but the vocabulary has {}", id, size()));
    }
    tokens_[static_cast<size_t>(id)].clear();
  }
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].size() > kMaxTokenBytes) {
      throw InputError(fmt::format("token {} has over {} bytes", id, kMaxTokenBytes));
    }
    if (!tokens_[id].empty()) ids_.push_back(static_cast<TokenId>(id));
  }
  std::ranges::sort(ids_, [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order < 0 || (order == 0 && a < b);
  });
  std::vector<uint32_t> path;  // The nodes of the token before.
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      const Node& node = nodes_[path.back()];
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      if (path.size() > 1) nodes_[path[path.size() - 2]].bytes |= node.bytes | class_of(node.byte);
    }
  };
  std::string_view before;
  for (uint32_t i = 0; i < ids_.size(); ++i) {
    const std::string_view text = bytes(ids_[i]);
    const auto [end, unused] = std::ranges::mismatch(before, text);
    const auto shared = static_cast<size_t>(end - before.begin());
    leave(shared);
    for (size_t depth = shared; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.first_id = i,
                        .depth = static_cast<uint16_t>(depth + 1),
                        .byte = static_cast<uint8_t>(text[depth])});
    }
    max_depth_ = std::max(max_depth_, static_cast<uint16_t>(text.size()));
    before = text;
  }
  leave(0);
  nodes_.push_back({.first_id = static_cast<uint32_t>(ids_.size())});
}

bool Vocabulary::is_end(TokenId id) const {
  return std::ranges::find(end_ids_, id) != end_ids_.end();
}

}  // namespace atl::grammar
