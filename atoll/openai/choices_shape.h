#pragma once
// What the shapes of completions and of chats have in common: a list of choices, and how a stream
// of them ends. Pure.
#include "atoll/openai/answer.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::openai {

class ChoicesShape : public Shape {
 public:
  std::string end(const Answer& answer) final;

 protected:
  /// `chunk_kind`: what the objects of a stream are. `tokenizer` must outlive it.
  ChoicesShape(const char* chunk_kind, bool has_logprobs, bool includes_usage,
               const tokenizer::Tokenizer& tokenizer)
      : chunk_kind_(chunk_kind),
        has_logprobs_(has_logprobs),
        includes_usage_(includes_usage),
        tokenizer_(tokenizer) {}

  static Json object(const Answer& answer, const char* kind, Json choices);
  std::string chunk(const Answer& answer, Json choice) const;
  /// A piece without text says something where tokens are scored.
  bool is_empty(const Piece& piece) const {
    return piece.text.empty() && (piece.tokens.empty() || !has_logprobs_);
  }
  bool has_logprobs() const { return has_logprobs_; }
  const tokenizer::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  const char* const chunk_kind_;
  const bool has_logprobs_;
  const bool includes_usage_;
  const tokenizer::Tokenizer& tokenizer_;
};

}  // namespace atl::openai
