#pragma once
// Pace `lockstep` for a member: rounds follow from the step. Fragment after fragment is sent at its
// own step; its result is taken `delay` steps later, before what is sent then. After the last step
// all that is on its way is taken and every fragment sent once more.
#include <optional>

#include "atoll/method/fragments.h"
#include "atoll/rounds/pace.h"

namespace atl::rounds {

class Lockstep final : public Pace {
 public:
  Lockstep(const PaceOptions& options, const method::SyncOptions& sync, Standing& standing,
           collective::Decisions& decisions);

  int64_t step_after(int64_t step) override { return step + 1; }
  int64_t published_step(int64_t step) const override { return step; }
  bool is_kept(int64_t step, bool /*has_synced*/) const override {
    return keep_every_ > 0 && step % keep_every_ == 0;
  }
  bool syncs_after(int64_t step, bool lands) const override;
  bool fits(int64_t num_own, int64_t step) const override { return num_own <= step; }
  int64_t number(int64_t fragment, int64_t round, int64_t step) const override;

  /// A missed round may be the very one that is begun: the others waited for this member's part.
  Result<std::optional<Task>> next(int64_t step) override;
  /// An own round comes before a later one of its fragment, which rests on its result.
  std::optional<Task> next_missed() override;
  /// Where the others are, but before the next round. The last step is everybody's own: there all
  /// fragments come together.
  CaughtUp caught_up(int64_t step) override;
  Fate taken(const collective::Commit& /*commit*/, Fate fate) override { return fate; }

  std::vector<OwnRound> resumed(int64_t step) override;

 private:
  bool is_last(int64_t step) const { return step == last_step_; }
  /// Who leaves takes what is on its way at once, as after the last step.
  bool is_due(const OwnRound& own, int64_t step) const {
    return is_last(step) || standing_.has_counted() || own.step + delay_ <= step;
  }
  int64_t next_due(int64_t step) const;
  /// What is sent of the fragment after `step`, at which it is due.
  OwnRound sent(int64_t fragment, int64_t step) const;
  std::optional<OwnRound> to_begin(int64_t step) const;

  int64_t last_step_;
  int64_t keep_every_;
  int64_t num_fragments_;
  int64_t delay_;
  std::optional<method::FragmentSchedule> schedule_;  // None: there is nobody to agree with.
  int64_t newest_step_ = 0;                           // Of the commits that were missed.
};

}  // namespace atl::rounds
