#pragma once
// One member's rounds: which are open, due, missed, applied and held, and so what is to be done
// next. A pure state machine without values: `sync` does its tasks with tensors, the simulated
// island with numbers.
//   before a step   while (auto task = next_missed()) do it;  step = caught_up(step)
//   after a step    trained(step);  while (auto task = next()) do it
// To do a Take is to wait for the commit, say taken() and take its result; to do an Absorb is to
// take the result and say absorbed(); the state of the fragment is then applied(). To do a Begin is
// to say begun() and to send the values.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "atoll/rounds/pace.h"

namespace atl::rounds {

/// What a commit was to this member.
struct Taken {
  OwnRound own;
  Fate fate = Fate::kLate;
  Digest before{};  // The state_name() before it.
};

/// Not thread-safe.
class Rounds {
 public:
  /// `decisions` outlives it.
  Rounds(Standing standing, const PaceOptions& options, const method::SyncOptions& sync,
         collective::Decisions& decisions);
  Rounds(const Rounds&) = delete;  // The pace refers to the standing in here.
  Rounds& operator=(const Rounds&) = delete;

  const Standing& standing() const { return standing_; }
  const Pace& pace() const { return *pace_; }

  int64_t step_after(int64_t step) { return pace_->step_after(step); }
  /// This member has taken the step to `step`; what is to be done is that after it.
  void trained(int64_t step);
  Result<std::optional<Task>> next() { return pace_->next(step_); }
  std::optional<Task> next_missed() { return pace_->next_missed(); }
  CaughtUp caught_up(int64_t step) { return pace_->caught_up(step); }

  /// Whether this member's part of a round that it is about to begin is to count: it has not
  /// abstained since the last one, nor when it first sent it.
  bool counts(int64_t round);
  void begun(OwnRound own);
  /// The state of the fragment is what the round made of it.
  void applied(int64_t fragment, int64_t round) { standing_.applied(fragment, round); }
  /// Of a round that was begun.
  Taken taken(const collective::Commit& commit);
  /// Whether a missed round's result is still to be taken.
  bool is_missing(const collective::Commit& commit) const;
  /// Of one that was not: its result was taken. Returns the state_name() before it.
  Digest absorbed(const collective::Commit& commit);
  /// A missed round that is about no fragment, or in the state already.
  void passed(const collective::Commit& commit);

  /// This step went wrong: the next round counts this member's part with weight 0.
  void abstain() { abstains_ = true; }
  bool abstains() const { return abstains_; }
  /// Rounds on their way that do so. After a resume they do so again.
  std::vector<int64_t> abstained() const;
  void abstain_again(std::vector<int64_t> rounds) { abstains_again_ = std::move(rounds); }
  /// This member ends early: the round is left unused.
  void drained(int64_t round) { standing_.decided(round); }

  /// It is to leave soon; it may once what it has learned is with the others.
  void leave_soon();
  bool may_leave(int64_t step, bool lands) const;

  /// Resuming: what a checkpoint says.
  void restore(std::vector<Digest> held, std::vector<int64_t> applied);
  /// Resuming: everything is as it was after `step`. Returns what was on its way, to be sent again.
  std::vector<OwnRound> resumed(int64_t step);
  /// Resuming: the state goes on by a round that was committed after the checkpoint. `before` is
  /// the state_name() before it; false: it is another.
  bool follows(int64_t fragment, const Digest& before) const;
  void replayed(int64_t fragment, const Digest& after) { standing_.hold(fragment, after); }
  /// Resuming, last: all of them were; the run stands at `step`.
  void resumed_at_commit(int64_t step);
  /// A newcomer: the fragment's state is that of the round, and of this digest.
  void imported(int64_t fragment, const Digest& digest) { standing_.hold(fragment, digest); }
  /// A newcomer, last: the run stands at `step`. `last_round` as in Pace::joined().
  void joined(int64_t step, int64_t last_round);

 private:
  Digest note(const collective::Commit& commit);

  Standing standing_;
  std::unique_ptr<Pace> pace_;
  int64_t step_ = 0;
  bool abstains_ = false;
  std::vector<int64_t> abstains_again_;  // Rounds.
};

/// Of a whole published state: its fragments' digests, as Standing::held() has them, as one.
Digest state_name(std::span<const Digest> held);

}  // namespace atl::rounds
