#pragma once
// Which tokens may come next: for a grammar, a vocabulary and a place in the grammar. Most of the
// answer depends on the state alone, whoever called its rule: that part is found once for a state
// and kept. Only tokens that leave the rule are looked at with the calls around it, each time.
//
// Shared by threads; what is kept is guarded.
#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/grammar/kept_masks.h"
#include "atoll/grammar/machine.h"
#include "atoll/grammar/vocabulary.h"

namespace atl::grammar {

/// A bit for each token id.
class TokenMask {
 public:
  explicit TokenMask(size_t num_tokens) : words_((num_tokens + 63) / 64) {}
  void allow(TokenId id) { words_[place(id)] |= bit(id); }
  void forbid(TokenId id) { words_[place(id)] &= ~bit(id); }
  bool allows(TokenId id) const { return (words_[place(id)] & bit(id)) != 0; }
  void add(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  std::vector<uint64_t>& words() { return words_; }
  const std::vector<uint64_t>& words() const { return words_; }
  size_t count() const;
  bool operator==(const TokenMask&) const = default;

 private:
  static size_t place(TokenId id) { return static_cast<size_t>(id) / 64; }
  static uint64_t bit(TokenId id) { return uint64_t{1} << (static_cast<size_t>(id) % 64); }
  std::vector<uint64_t> words_;
};

class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);
  ~TokenMasks();

  /// The tokens after which a text can still be finished, and those that end it where it may end.
  TokenMask mask(const Place& place) const;

  /// About how much memory grammar and what is kept take: more, the more places were asked for.
  size_t num_bytes() const { return grammar_->num_bytes() + kept_.num_bytes(); }
  const Grammar& grammar() const { return *grammar_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  class Walk;
  class Search;
  std::shared_ptr<const StateMask> of_state(uint32_t state) const;

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  mutable KeptMasks kept_;
};

}  // namespace atl::grammar
