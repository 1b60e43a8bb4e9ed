#pragma once
// Keeps a text within a grammar, token by token. Where it is follows from the grammar and the
// tokens alone, so a text that is taken up again, or goes on in several ways, needs only its
// tokens. For one thread; copies are independent and cheap.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/grammar/token_masks.h"

namespace atl::grammar {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const TokenMasks> masks);

  /// Takes a token; false, and nothing changes, where it is not allowed.
  [[nodiscard]] bool advance(TokenId token);
  /// The same of tokens: how many were allowed and taken.
  [[nodiscard]] size_t advance(std::span<const TokenId> tokens);
  /// Takes back the last `count` tokens, up to kMaxRollback of them: drafts that were not right.
  void roll_back(size_t count);

  TokenMask mask() const;
  /// A token that ends texts was taken: nothing may follow.
  bool is_done() const { return is_done_; }
  /// The text may end here.
  bool may_end() const { return is_done_ || places_.back()->may_end; }
  const Place& place() const { return *places_.back(); }
  size_t num_tokens() const { return num_tokens_; }

  static constexpr size_t kMaxRollback = 64;

 private:
  std::shared_ptr<const TokenMasks> masks_;
  std::vector<std::shared_ptr<const Place>> places_;  // The last ones; where it is, at the end.
  size_t num_tokens_ = 0;
  bool is_done_ = false;
};

}  // namespace atl::grammar
