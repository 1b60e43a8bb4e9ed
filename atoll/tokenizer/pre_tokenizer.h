#pragma once
// How a text is cut into words, by one step after the other: each cuts every piece that the one
// before left. Where a step adds to a piece, the piece moves to memory of its own.
//
// Most families need none of it: their words are cut by hand (gpt2_words.h, cl100k_words.h,
// joined_words.h). Immutable, shared by threads.
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/tokenizer/matcher.h"

namespace atl::tokenizer {

struct Piece {
  std::string_view text;  // Not empty.
  bool is_first = false;  // It begins the text.
};

/// The pieces of one text, reused for the next.
struct Pieces {
  std::vector<Piece> all;
  std::deque<std::string> owned;  // What is not in the text.
};

/// Adds what `piece` is cut into.
using CutStep = std::function<void(const Piece& piece, Pieces& out)>;

/// What becomes of a match, and of what stands between matches.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // Neighbouring matches are one piece.
};

/// `invert`: what matches and what does not change places.
CutStep split_by(Matcher what, SplitBehavior behavior, bool invert = false);
/// A space before each piece that begins with none.
CutStep with_prefix_space();
/// Metaspace: spaces become `mark`, and one is put before a piece that begins with none.
enum class PrefixScheme : uint8_t { kNever, kFirst, kAlways };
CutStep mark_spaces(std::string mark, PrefixScheme prefix, bool splits);

class PreTokenizer {
 public:
  void add(CutStep step, bool keeps_text) {
    steps_.push_back(std::move(step));
    keeps_text_ = keeps_text_ && keeps_text;
  }
  /// Whether pieces together are the text that they were cut from.
  bool keeps_text() const { return keeps_text_; }
  /// Into `pieces`; `spare` is scratch. `is_first`: the text begins here.
  void cut(std::string_view text, bool is_first, Pieces& pieces, std::vector<Piece>& spare) const;

 private:
  std::vector<CutStep> steps_;
  bool keeps_text_ = true;
};

}  // namespace atl::tokenizer
