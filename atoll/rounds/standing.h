#pragma once
// Where one member stands, fragment by fragment, and which rounds of its own are on their way.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/hash.h"
#include "atoll/collective/averager.h"

namespace atl::rounds {

/// A round of this member's own: as it is to be begun, and while it is on its way.
struct OwnRound {
  int64_t round = 0;
  int32_t fragment = 0;
  int64_t step = 0;       // After which its values are those sent.
  int64_t number = 1;     // How many times its fragment will have been sent with it.
  int64_t num_steps = 0;  // Of this member, that are in its values and in no round before.
  bool has_abstained = false;
};

class Standing {
 public:
  /// `names_states`: a commit's digest is that of the fragment's published state after it.
  Standing(int64_t num_fragments, bool names_states)
      : applied_(static_cast<size_t>(num_fragments), -1),
        begun_(applied_.size(), -1),
        steps_since_(applied_.size()),
        held_(names_states ? applied_.size() : 0) {}

  int64_t num_fragments() const { return std::ssize(applied_); }
  /// By fragment: the newest round in its state; -1: none of this run is.
  const std::vector<int64_t>& applied() const { return applied_; }
  /// By fragment: the digest of its state, as it was committed; zeros before that. Nothing where
  /// commits do not name states.
  const std::vector<Digest>& held() const { return held_; }
  /// Whether the fragment has this round's result, or a later one's.
  bool is_applied(int64_t fragment, int64_t round) const {
    return applied_.at(at(fragment)) >= round;
  }
  /// Whether this process has begun that round of the fragment, or a later one.
  bool is_begun(int64_t fragment, int64_t round) const { return begun_.at(at(fragment)) >= round; }
  /// Own steps that no round has counted yet.
  int64_t steps_since(int64_t fragment) const { return steps_since_.at(at(fragment)); }
  /// Those that no round of any fragment has counted.
  int64_t steps_in_none() const { return *std::ranges::min_element(steps_since_); }
  /// Own rounds that are not decided, or not taken.
  const std::map<int64_t, OwnRound>& open() const { return open_; }
  /// The run ends for all with a commit that was taken.
  bool stops() const { return stops_; }

  /// What this member had learned when it was to leave is in a round of each fragment: it begins no
  /// more.
  bool has_counted() const { return std::ssize(counted_) == num_fragments(); }

  void trained() {
    for (int64_t& steps : steps_since_) steps += 1;
  }
  void begun(const OwnRound& own) {
    int64_t& newest = begun_.at(at(own.fragment));
    newest = std::max(newest, own.round);
    open_[own.round] = own;
  }
  /// Takes the round off those on their way.
  OwnRound decided(int64_t round) {
    const auto open = open_.find(round);
    ATOLL_CHECK(open != open_.end(), "of a round that was begun");
    const OwnRound own = open->second;
    open_.erase(open);
    return own;
  }
  void applied(int64_t fragment, int64_t round) { applied_.at(at(fragment)) = round; }
  void hold(int64_t fragment, const Digest& digest) {
    if (!held_.empty()) held_.at(at(fragment)) = digest;
  }
  void set_steps_since(int64_t fragment, int64_t steps) { steps_since_.at(at(fragment)) = steps; }
  /// What was learned is in what all hold, or lost.
  void forget_steps() { std::ranges::fill(steps_since_, 0); }
  /// The rounds in the states are another run's.
  void forget_rounds() { std::ranges::fill(applied_, -1); }
  void note_stop() { stops_ = true; }
  void leave_soon() {
    if (!newest_before_leaving_) newest_before_leaving_ = *std::ranges::max_element(begun_);
  }
  /// A round of the fragment was committed with this member's part.
  void included(const OwnRound& own) {
    steps_since_.at(at(own.fragment)) -= own.num_steps;
    if (newest_before_leaving_ && own.round > *newest_before_leaving_)
      counted_.insert(own.fragment);
  }
  void restore(std::vector<Digest> held, std::vector<int64_t> applied) {
    held_ = std::move(held);
    applied_ = std::move(applied);
  }

 private:
  static size_t at(int64_t fragment) { return static_cast<size_t>(fragment); }

  std::vector<int64_t> applied_;
  std::vector<int64_t> begun_;
  std::vector<int64_t> steps_since_;
  std::vector<Digest> held_;
  std::map<int64_t, OwnRound> open_;
  bool stops_ = false;
  std::optional<int64_t> newest_before_leaving_;  // Round that was begun.
  std::set<int64_t> counted_;                     // Fragments, since then.
};

}  // namespace atl::rounds
