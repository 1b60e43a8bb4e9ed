#pragma once
// Runs a grammar: where a text may be in it after some bytes. That is a set of configurations, each
// a state and the calls that are open around it; configurations share those that they have in
// common. What comes of a byte is a pure function of grammar, place and byte.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/grammar/grammar.h"

namespace atl::grammar {

/// An open call, or the place in the innermost rule. Frame 0 is what is around the root.
struct Frame {
  uint32_t state = 0;
  Bounds left;          // Of the counting edges of this call of the rule.
  uint32_t parent = 0;  // A frame: where the rule's end leads to.
  auto operator<=>(const Frame&) const = default;
};

/// Where a text may be: a value.
struct Place {
  std::vector<Frame> tops;       // In which a byte can be taken.
  std::vector<Frame> frames;     // Open calls; parents stand before their children.
  std::vector<uint32_t> depths;  // Of each frame.
  bool may_end = false;
  bool operator==(const Place&) const = default;
};

/// The loop that takes bytes, with memory of its own that is used again. For one thread.
class Machine {
 public:
  /// What is around the root: nothing (its end is the text's end), or unknown callers, to find what
  /// a state allows whoever called its rule.
  enum class Around : uint8_t { kNothing, kUnknown };
  explicit Machine(const Grammar& grammar, Around around = Around::kNothing);

  struct Outcome {
    bool ended = false;    // The root may be at its end.
    bool checked = false;  // An edge was taken that needs enough, with unknown callers.
  };
  /// Where a text may be at its begin.
  Place begin();
  /// Where it is after `bytes`; no tops and no end where they do not fit.
  Place advance(const Place& place, std::string_view bytes);

  /// For walks: frames of `place`; then step by step, from tops to tops.
  void load(const Place& place);
  Outcome step(std::span<const Frame> from, uint8_t byte, std::vector<Frame>& to);
  size_t num_frames() const { return frames_.size(); }
  /// Takes frames back that were made since there were so many.
  void shrink(size_t num_frames);
  const Frame& frame(uint32_t index) const { return frames_[index]; }
  uint32_t depth(uint32_t frame) const { return depths_[frame]; }
  /// How deep the deepest call was, and what it needs to end, since the last load.
  uint32_t reach() const { return reach_; }

  static constexpr size_t kMaxTops = 1024;  // Further ways of an ambiguous grammar are left out.

 private:
  void add(const Frame& top, std::vector<Frame>& tops);
  void close(std::vector<Frame>& tops, Outcome& outcome);
  uint32_t push(const Frame& frame);
  Place place_of(std::span<const Frame> tops, bool may_end) const;

  const Grammar& grammar_;
  const Around around_;
  std::vector<Frame> frames_;
  std::vector<uint32_t> depths_;
  size_t step_begin_ = 0;  // Frames made in this step are found again.
  uint32_t reach_ = 0;
  std::vector<Frame> from_, to_;
};

}  // namespace atl::grammar
