#pragma once
// Regular expressions as tokenizer files write them, run by Oniguruma, the engine of Hugging Face's
// `tokenizers`. Classes are those of Unicode 16, whichever Unicode the system's Oniguruma knows.
// Patterns come from strangers: what a search may cost is bounded. Immutable, shared by threads.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace atl::text {

class Regex {
 public:
  /// Throws InputError saying where the pattern is wrong.
  explicit Regex(std::string pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  const std::string& pattern() const { return pattern_; }
  /// Calls on_match(begin, end) for what matches in `text` (valid UTF-8), from left to right, none
  /// over another; empty ones too, but where the one before ends. Throws InputError when that takes
  /// too long: over 20,000 steps back at a place, with 100 searches that may take 10 million.
  void each_match(std::string_view text,
                  const std::function<void(size_t begin, size_t end)>& on_match) const;

 private:
  struct Compiled;
  std::string pattern_;
  std::unique_ptr<const Compiled> compiled_;
};

/// The pattern with each class written out where Unicode 16 has characters that `\p{...}`, `\d` and
/// `\w` of Unicode 14 lack. Throws InputError at options that change what classes are. Pure.
std::string with_unicode_16(std::string_view pattern);

}  // namespace atl::text
