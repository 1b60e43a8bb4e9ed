#pragma once
// A text that a model reads beside others, token by token or many at once, and what becomes of its
// hidden states: an answer that grows, or a mean over all of it. Knows nothing of when it is read.
//
// Shapes: C = hidden size, V = vocabulary.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "atoll/decoding/draw.h"
#include "atoll/decoding/generator.h"

namespace atl::serve {

/// Tokens as a model takes them: (1, T), in CPU memory.
at::Tensor tensor_1T(std::span<const int64_t> tokens);

class Sequence {
 public:
  using Id = decoding::Generator::Id;

  Sequence(Id id, std::vector<int64_t> tokens, uint64_t tenant, uint64_t adapter = 0)
      : id_(id), tenant_(tenant), adapter_(adapter), tokens_(std::move(tokens)) {}
  virtual ~Sequence() = default;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Id id() const { return id_; }
  /// It shares with texts of the same one alone.
  uint64_t tenant() const { return tenant_; }
  /// By which it is read: it shares with texts of the same one alone.
  uint64_t adapter() const { return adapter_; }
  const std::vector<int64_t>& tokens() const { return tokens_; }

  /// Whether it is content without the hidden states of tokens whose keys and values are there.
  virtual bool may_skip() const = 0;
  /// Whether it wants logits, not hidden states.
  virtual bool wants_logits() const = 0;
  /// The first position of whose token it wants something; of all behind it as well.
  virtual int64_t wanted_from() const = 0;
  /// What it wants of the row of the token at that position. Throws InputError where nothing can
  /// follow.
  virtual decoding::Order order(int64_t position) const = 0;
  /// Of the rows from `begin` to before `end` of a text: its tokens, and what is supposed behind
  /// them.
  virtual std::vector<decoding::Order> orders(int64_t begin, int64_t end,
                                              std::span<const int64_t> text) const;
  /// Gets what came of its orders, one by one. True: nothing more is wanted. Throws InputError
  /// where that cannot be used.
  virtual bool take(int64_t position, const decoding::Outcome& outcome) = 0;
  /// The order for that position, followed here: the row is (C), or (V) which is overwritten.
  /// Throws InputError where logits are not finite.
  decoding::Outcome follow(int64_t position, const at::Tensor& row) const;
  /// Its keys and values are there up to here without having been read.
  virtual void skipped(decoding::Listener::Cached /*cached*/) {}
  /// As decoding::GenerationRequest has it.
  virtual std::optional<double> round_after() const { return std::nullopt; }
  virtual void fail(const decoding::Refusal& refusal) = 0;

  // What it may take next, for those who guess. Nothing of it changes what it takes.

  /// Tokens that it may take still, about: fewer where it ends before.
  virtual int64_t num_to_come() const { return 0; }
  /// As if this token had been taken behind those that are supposed already. False, and nothing
  /// changes, where it may not follow.
  virtual bool suppose(int64_t /*id*/) { return false; }
  /// None of those that are supposed and were not taken holds.
  virtual void suppose_nothing() {}
  /// What it would take at that position, behind what is supposed, if these were the logits (V),
  /// which are overwritten; nothing where it would end. Throws as take() does.
  virtual std::optional<int64_t> guess(int64_t /*position*/, const at::Tensor& /*row*/) const {
    return std::nullopt;
  }

 protected:
  void append(int64_t id) { tokens_.push_back(id); }

 private:
  Id id_;
  uint64_t tenant_;
  uint64_t adapter_;
  std::vector<int64_t> tokens_;
};

class Answer final : public Sequence {
 public:
  /// `max_length`: tokens in all. Throws as decoding::Draw does.
  Answer(Id id, decoding::GenerationRequest request, int64_t vocab_size, int64_t max_length,
         std::shared_ptr<decoding::Listener> listener);

  bool may_skip() const override { return !scores_prompt_; }
  bool wants_logits() const override { return true; }
  int64_t wanted_from() const override;
  decoding::Order order(int64_t position) const override;
  std::vector<decoding::Order> orders(int64_t begin, int64_t end,
                                      std::span<const int64_t> text) const override;
  bool take(int64_t position, const decoding::Outcome& outcome) override;
  void skipped(decoding::Listener::Cached cached) override { cached_ = cached; }
  std::optional<double> round_after() const override { return round_after_; }
  void fail(const decoding::Refusal& refusal) override { listener_->failed(refusal); }
  int64_t num_to_come() const override { return max_length_ - std::ssize(tokens()); }
  bool suppose(int64_t id) override;
  void suppose_nothing() override { supposed_.reset(); }
  std::optional<int64_t> guess(int64_t position, const at::Tensor& row) const override;

 private:
  bool finish(decoding::FinishReason reason);

  decoding::Draw draw_;
  std::optional<decoding::Draw> supposed_;  // The same behind what is supposed.
  const std::shared_ptr<decoding::Listener> listener_;
  const int64_t num_prompt_;
  const int64_t max_length_;  // Of tokens().
  const std::optional<int64_t> num_top_;
  const bool scores_prompt_;
  const std::optional<double> round_after_;
  bool was_read_ = false;  // The prompt.
  decoding::Listener::Cached cached_;
  std::vector<decoding::TokenScore> prompt_scores_;
};

/// The mean of the hidden states behind the final norm.
class Embedding final : public Sequence {
 public:
  Embedding(Id id, std::vector<int64_t> text, uint64_t tenant,
            std::shared_ptr<decoding::EmbeddingListener> listener)
      : Sequence(id, std::move(text), tenant), listener_(std::move(listener)) {}

  bool may_skip() const override { return false; }
  bool wants_logits() const override { return false; }
  int64_t wanted_from() const override { return num_summed_; }
  decoding::Order order(int64_t /*position*/) const override {
    return {.wanted = decoding::Wanted::kHidden};
  }
  bool take(int64_t position, const decoding::Outcome& outcome) override;
  void fail(const decoding::Refusal& refusal) override { listener_->failed(refusal); }

 private:
  const std::shared_ptr<decoding::EmbeddingListener> listener_;
  std::vector<double> sum_C_;
  int64_t num_summed_ = 0;
};

}  // namespace atl::serve
