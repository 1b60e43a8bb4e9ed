#pragma once
// How one answer's next token is drawn, again and again. A pure function of the request and the
// tokens so far, so that an answer that is moved to another machine, or begun anew from its
// tokens, goes on as it would have.
#include <cstdint>

#include "atoll/decoding/generator.h"
#include "atoll/decoding/order.h"
#include "atoll/decoding/sampler.h"
#include "atoll/grammar/matcher.h"

namespace atl::decoding {

class Draw {
 public:
  /// Throws UsageError where an option is out of range, InputError for ids over the vocabulary.
  Draw(const GenerationRequest& request, int64_t vocab_size);

  /// How the token behind `position` others is drawn; scored if the request asks for that. Throws
  /// InputError where the grammar goes on with what no token has.
  Order order(int64_t position) const;
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
