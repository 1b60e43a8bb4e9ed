#pragma once
// What a text goes through before words are cut: steps, each of which changes it or gives it back
// as it came. Immutable, shared by threads.
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/normal_form.h"
#include "atoll/text/regex.h"

namespace atl::tokenizer {

/// Where matches of `text` are, as text::Regex::each_match() tells them.
using Matcher = std::function<void(std::string_view text,
                                   const std::function<void(size_t begin, size_t end)>& on_match)>;

Matcher match_regex(std::string pattern);
/// An empty one matches before each character and at the end.
Matcher match_string(std::string part);
/// Each character of which `is_one` says so.
Matcher match_characters(std::function<bool(uint32_t)> is_one);

/// `text` itself, or a copy in `scratch`.
using NormalizerStep = std::function<std::string_view(std::string_view text, std::string& scratch)>;

NormalizerStep to_form(text::NormalForm form);
NormalizerStep to_lower();
NormalizerStep replace(Matcher what, std::string with);
/// Texts that are not empty only.
NormalizerStep prepend(std::string prefix);
/// Of white space.
NormalizerStep strip(bool left, bool right);

class Normalizer {
 public:
  using Scratch = std::array<std::string, 2>;

  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  /// Gives texts back as they came.
  bool is_empty() const { return steps_.empty(); }
  /// `text` itself, or a copy in one of the scratches.
  std::string_view apply(std::string_view text, Scratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace atl::tokenizer
