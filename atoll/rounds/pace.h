#pragma once
// When a member's rounds are due, what it waits for, and what step it is at: for a member, a pace
// is one of two objects that answer the same questions. In `Lockstep` rounds follow from the step,
// which all members count alike. In `Elastic` the run calls them, one at a time, and training goes
// on until the result is there. Pure; coordinator/pace.h is the coordinator's side.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/method/sync_options.h"
#include "atoll/rounds/standing.h"

namespace atl::rounds {

/// What became of a member's part of a round.
enum class Fate : uint8_t {
  kCounted,    // The live parameters are still those that were sent, or are mixed with the result.
  kOvertaken,  // It counted, and what this member has learned since it was sent stays its own.
  kAbstained,  // It had no weight,
  kLeftOut,    // or the others took it away. What was learned is lost: it is to be unlearned.
  kLate,       // The round was committed without this member: its part counts in a later one.
};

/// To do: wait for the commit of this round of one's own, and take its result.
struct Take {
  int64_t round = 0;
};
/// To do: begin this round.
struct Begin {
  OwnRound own;
};
/// To do: take the result of a round that this member has not begun.
struct Absorb {
  collective::Commit commit;
};
using Task = std::variant<Take, Begin, Absorb>;

/// Where a member goes on once it has caught up with the others.
struct CaughtUp {
  int64_t step = 0;
  int64_t left_to_others = 0;  // Steps up to there that are none of this member's.
  bool rests = false;          // First what is published is to be kept; then there may be more.
};

/// Not thread-safe. Steps are the run's.
class Pace {
 public:
  /// Both outlive it.
  Pace(Standing& standing, collective::Decisions& decisions)
      : standing_(standing), decisions_(decisions) {}
  virtual ~Pace() = default;
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  /// Where the run is once this member has taken another step, `step` before it.
  virtual int64_t step_after(int64_t step) = 0;
  /// The step that the published parameters are of, `step` being the run's now.
  virtual int64_t published_step(int64_t step) const = 0;
  /// Whether the published parameters are those of a step at which all members are to keep them.
  /// `has_synced`: a round was taken with the last step.
  virtual bool is_kept(int64_t step, bool has_synced) const = 0;
  /// Whether all members are equal after `step`, but for what is a member's own. `lands`: taking a
  /// round makes the live parameters the published ones.
  virtual bool syncs_after(int64_t step, bool lands) const = 0;
  /// Whether a member can have taken so many steps of its own when the run is at `step`.
  virtual bool fits(int64_t num_own, int64_t step) const = 0;
  /// How many times its fragment will have been sent with the round that is of `step`.
  virtual int64_t number(int64_t fragment, int64_t round, int64_t step) const = 0;

  /// What is to be done after `step`, next; nothing: go on training. Fails when the run asks for
  /// what cannot be.
  virtual Result<std::optional<Task>> next(int64_t step) = 0;
  /// The same before a step, of what was committed without this member.
  virtual std::optional<Task> next_missed() = 0;
  /// next_missed() has nothing more, being at `step` before its first.
  virtual CaughtUp caught_up(int64_t step) = 0;
  /// A commit is taken, and `fate` is what it says of this member's part. Returns what became of
  /// it.
  virtual Fate taken(const collective::Commit& commit, Fate fate) = 0;

  /// Resuming: everything is as it was after `step`, but for what was learned and not counted yet,
  /// which is noted here. Returns what was on its way, the oldest first, to be sent again.
  virtual std::vector<OwnRound> resumed(int64_t step) = 0;
  /// A newcomer: the run stands at `step`. `last_round` if that is the run's last and one of the
  /// states here has it; -1: not known.
  virtual void joined(int64_t /*step*/, int64_t /*last_round*/) {}

 protected:
  /// The oldest round that was committed without this member; null: there is none.
  const collective::Commit* missed() {
    if (!missed_) missed_ = decisions_.take_missed();
    return missed_ ? &*missed_ : nullptr;
  }
  Absorb take_missed() { return {*std::exchange(missed_, std::nullopt)}; }

  Standing& standing_;
  collective::Decisions& decisions_;

 private:
  std::optional<collective::Commit> missed_;
};

struct PaceOptions {
  std::string name = "lockstep";  // swarm.pace.
  int64_t last_step = 0;          // The run's: a sync is due there, whatever its number.
  int64_t keep_every = 0;         // Steps, at which all members keep what is published; 0: none.
};

std::unique_ptr<Pace> make_pace(const PaceOptions& options, const method::SyncOptions& sync,
                                Standing& standing, collective::Decisions& decisions);

}  // namespace atl::rounds
