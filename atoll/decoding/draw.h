#pragma once
// One answer's next token, again and again: from logits, by what its request asks for. A pure
// function of the request and the tokens so far, so that an answer that is moved to another
// machine, or begun anew from its tokens, goes on as it would have.
//
// Shapes: V = vocabulary.
#include <cstdint>
#include <span>

#include "atoll/decoding/generator.h"
#include "atoll/decoding/sampler.h"
#include "atoll/grammar/matcher.h"

namespace atl::decoding {

/// How likely a model finds `id`, and the `num_top` ids that it finds likeliest, equals by id.
TokenScore score_of(std::span<const float> logits_V, int64_t id, int64_t num_top);

class Draw {
 public:
  /// Throws UsageError where an option is out of range, InputError for ids over the vocabulary.
  Draw(const GenerationRequest& request, int64_t vocab_size);

  /// The token behind `position` others; scored if the request asks for that, else its id alone.
  /// Overwrites the logits. Throws InputError when a logit is not finite: the model is damaged; and
  /// where the grammar goes on with what no token has.
  TokenScore next(std::span<float> logits_V, int64_t position) const;
  /// Its id alone.
  int64_t choose(std::span<float> logits_V, int64_t position) const;
  /// It belongs to the text now: no end of it.
  void add(int64_t id);
  /// The same of a guess. False, and nothing changes, where it may not follow: it ends the text, or
  /// the grammar does not allow it.
  [[nodiscard]] bool add_guess(int64_t id);
  /// The text ends before this token.
  bool is_end(int64_t id) const;
  /// The grammar lets nothing follow: the text ends here, whatever the model finds.
  bool is_over() const;

 private:
  SamplerOptions sampler_;
  std::vector<int64_t> ends_;
  std::map<int64_t, float> bias_;
  std::optional<int64_t> num_top_;
  SeenTokens seen_;
  std::optional<grammar::Matcher> matcher_;  // Where the answer is in its grammar, if it has one.
};

}  // namespace atl::decoding
