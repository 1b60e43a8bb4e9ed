#pragma once
// What a text goes through before words are cut: steps, each of which changes it or gives it back
// as it came. Immutable, shared by threads.
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/normal_form.h"
#include "atoll/tokenizer/matcher.h"

namespace atl::tokenizer {

/// `text` itself, or a copy in `scratch`.
using NormalizerStep = std::function<std::string_view(std::string_view text, std::string& scratch)>;

NormalizerStep to_form(text::NormalForm form);
NormalizerStep to_lower();
NormalizerStep replace(Matcher what, std::string with);
/// Texts that are not empty only.
NormalizerStep prepend(std::string prefix);
/// Of white space.
NormalizerStep strip(bool left, bool right);
/// Without marks.
NormalizerStep strip_accents();
/// SentencePiece's first one: controls vanish, unusual white space becomes spaces.
NormalizerStep nmt();
/// What SentencePiece's table of characters has. Throws InputError where it is none.
NormalizerStep precompiled(std::string_view charsmap);

/// BERT's, in this order.
struct BertSteps {
  bool clean_text = true;  // Without what is not seen; white space is spaces.
  bool spaces_around_chinese = true;
  bool strip_accents = true;
  bool lowercase = true;
};
NormalizerStep bert(const BertSteps& steps);

class Normalizer {
 public:
  using Scratch = std::array<std::string, 2>;

  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  /// Gives texts back as they came.
  bool is_empty() const { return steps_.empty(); }
  /// `text` itself, or a copy in one of the scratches. Throws InputError where it grows without
  /// reason.
  std::string_view apply(std::string_view text, Scratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace atl::tokenizer
