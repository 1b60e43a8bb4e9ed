#pragma once
// Texts to tokens as lm-evaluation-harness's HFLM cuts them: where a continuation begins, what
// stands before a text, what is left of one that is too long. Torch-free.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tasks {

/// Tokens whose likelihood is asked, behind those that a model reads before them.
struct TokenRequest {
  std::vector<int64_t> context;       // Never empty; together with the continuation at most
  std::vector<int64_t> continuation;  // max_length + 1 tokens.
};

/// One owner thread; must not outlive the tokenizer.
class RequestEncoder {
 public:
  /// `prefix`: the token before a text that nothing precedes, the tokenizer's begin of text or else
  /// its end of text. `max_length`: the tokens that the model reads at a time.
  RequestEncoder(const tokenizer::Tokenizer& tokenizer, int64_t prefix, int64_t max_length);

  /// Spaces at the context's end belong to the continuation: words keep the space before them. What
  /// is too long loses its beginning. Throws InputError when the continuation is without tokens or
  /// alone longer than max_length, or when nothing but white space precedes it.
  TokenRequest encode(std::string_view context, std::string_view continuation);

  /// A whole text in windows that follow each other: each token is predicted once, in all but the
  /// first window behind one token of context at least, in the last one behind as many as fit.
  std::vector<TokenRequest> encode_rolling(std::string_view text);

  /// What it encoded with.
  const tokenizer::Encoder& encoder() const { return encoder_; }

 private:
  /// With the tokens that the tokenizer puts around a text, unless it begins with the prefix.
  std::vector<int64_t> ids_of(std::string_view text);
  std::vector<int64_t> plain_ids_of(std::string_view text);

  const tokenizer::Tokenizer& tokenizer_;
  tokenizer::Encoder encoder_;
  int64_t prefix_;
  std::string prefix_text_;
  size_t max_length_;
};

/// The windows of encode_rolling() for tokens.
std::vector<TokenRequest> rolling_windows(const std::vector<int64_t>& ids, int64_t prefix,
                                          int64_t max_length);

}  // namespace atl::tasks
