#pragma once
// One answer as it grows, token by token: the text that may be shown, and which tokens it is made
// of. Pure; of one thread.
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/decoding/generator.h"
#include "atoll/openai/prompt.h"
#include "atoll/tokenizer/text_stream.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::openai {

/// A token of the text, with its score.
struct TextToken {
  decoding::TokenScore score;
  int64_t offset = 0;     // In characters of the text, where it begins.
  bool is_scored = true;  // The first of a prompt follows from nothing.
};

/// What has come since the last piece.
struct Piece {
  std::string text;
  std::vector<TextToken> tokens;  // Those that begin in the text so far.
};

class GrowingText {
 public:
  GrowingText(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops);

  /// The prompt, which the answer repeats; before all else. Stop strings in it end nothing.
  /// `scores` are those of its ids but the first; empty where there are none.
  Piece repeat(const PromptIds& prompt, const std::vector<decoding::TokenScore>& scores);
  Piece add(const decoding::TokenScore& score);
  /// The id that ends it: among the tokens of the rest, without a text.
  void add_end(const decoding::TokenScore& score);
  /// The rest, when nothing more comes.
  Piece finish();
  bool is_stopped() const { return stream_.is_stopped(); }

 private:
  void note(const decoding::TokenScore& score, std::string_view bytes, bool is_scored);
  void take_tokens(Piece& piece, bool all);

  struct Noted {
    TextToken token;
    size_t begin = 0;  // In bytes.
  };
  const tokenizer::Tokenizer& tokenizer_;
  tokenizer::TextStream stream_;
  tokenizer::TextStream whole_;  // Without stops: where characters are.
  std::deque<Noted> noted_;
  int64_t num_characters_ = 0;
  size_t num_bytes_ = 0;
  size_t num_repeated_ = 0;  // Of the bytes: the prompt's.
};

/// How many characters a text has.
int64_t num_characters(std::string_view utf8);

}  // namespace atl::openai
