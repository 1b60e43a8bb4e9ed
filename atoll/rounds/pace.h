#pragma once
// When a member's rounds are due, what it waits for, and what step it is at: for a member, a pace
// is one of two objects that answer the same questions. In `Lockstep` rounds follow from the step,
// which all members count alike. In `Elastic` the run calls them, one at a time, and training goes
// on until the result is there. Pure; coordinator/pace.h is the coordinator's side.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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

/// Not thread-safe. Steps are the run's.
class Pace {
 public:
  virtual ~Pace() = default;

  /// The run stands at `step`. Elastic: `last_round` if that is the run's
  /// last and one of the states here has it; -1: not known.
  virtual void start(int64_t step, int64_t last_round) = 0;
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

  /// What is to be done after `step`, next; nothing: go on training. Fails when the run asks for
  /// what cannot be.
  virtual Result<std::optional<Task>> next(const Standing& standing, int64_t step,
                                           collective::Decisions& decisions) = 0;
  /// How many times its fragment will have been sent with the round that is of `step`.
  virtual int64_t number(int64_t fragment, int64_t round, int64_t step) const = 0;
  /// A part that had a weight was counted.
  virtual Fate counted() const = 0;
  /// A commit up to `step` was taken; `steps_in_none` own ones are in no commit yet.
  virtual void committed(int64_t step, int64_t steps_in_none) = 0;
  /// Whether what is unlearned with a round is all that was learned since the last one.
  virtual bool unlearns_all() const = 0;

  /// Whether what was missed is to be absorbed before a round is begun: else its values may rest on
  /// states of different rounds. Where rounds wait for all, a missed one may be the very one.
  virtual bool absorbs_first() const = 0;
  /// The own round that has to be taken before a missed one is absorbed.
  virtual std::optional<int64_t> settled_before(const collective::Commit& missed,
                                                const Standing& standing) const = 0;
  /// Whether nothing more is to be absorbed, ever;
  virtual bool is_over(const Standing& standing) const = 0;
  /// or not before what is published now is kept.
  virtual bool rests() const = 0;
  /// Absorbed a commit of step `committed`, being at `step` before: where this member is then.
  virtual int64_t step_behind(int64_t step, int64_t committed) const = 0;
  /// There is nothing more to absorb: where this member goes on.
  virtual int64_t step_caught_up(int64_t step, const Standing& standing,
                                 collective::Decisions& decisions) = 0;
  /// How many of the steps from `before` to `step` others took in this member's place.
  virtual int64_t left_to_others(int64_t before, int64_t step) const = 0;

  /// Whether a member that is to leave may do so now. `syncs`: syncs_after() the present step.
  virtual bool may_leave(const Standing& standing, bool syncs) const = 0;

  /// Resuming: own steps that no round has counted at `step`, and the rounds on their way then,
  /// which are to be sent again, the oldest first.
  virtual int64_t steps_since(int64_t fragment, int64_t step) const = 0;
  virtual std::vector<OwnRound> on_their_way(int64_t step) const = 0;
  /// Whether there can be any.
  virtual bool sends_again() const = 0;
  /// Whether a run that goes on from a checkpoint counts its rounds from 0 again.
  virtual bool numbers_anew() const = 0;
};

struct PaceOptions {
  std::string name = "lockstep";  // swarm.pace.
  int64_t last_step = 0;          // The run's: a sync is due there, whatever its number.
  int64_t keep_every = 0;         // Steps, at which all members keep what is published; 0: none.
};

std::unique_ptr<Pace> make_pace(const PaceOptions& options, const method::SyncOptions& sync);

}  // namespace atl::rounds
