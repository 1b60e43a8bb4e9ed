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
  Lockstep(const PaceOptions& options, const method::SyncOptions& sync);

  void start(int64_t /*step*/, int64_t /*last_round*/) override {}
  int64_t step_after(int64_t step) override { return step + 1; }
  int64_t published_step(int64_t step) const override { return step; }
  bool is_kept(int64_t step, bool /*has_synced*/) const override {
    return keep_every_ > 0 && step % keep_every_ == 0;
  }
  bool syncs_after(int64_t step, bool lands) const override;
  bool fits(int64_t num_own, int64_t step) const override { return num_own <= step; }

  Result<std::optional<Task>> next(const Standing& standing, int64_t step,
                                   collective::Decisions& decisions) override;
  int64_t number(int64_t fragment, int64_t round, int64_t step) const override;
  Fate counted() const override { return Fate::kCounted; }
  void committed(int64_t /*step*/, int64_t /*steps_in_none*/) override {}
  bool unlearns_all() const override { return false; }

  bool absorbs_first() const override { return false; }
  /// An older one of the same fragment, on whose result it rests.
  std::optional<int64_t> settled_before(const collective::Commit& missed,
                                        const Standing& standing) const override;
  bool is_over(const Standing& /*standing*/) const override { return false; }
  bool rests() const override { return false; }
  /// The last step is everybody's own: there all fragments come together.
  int64_t step_behind(int64_t step, int64_t committed) const override;
  /// Where the others are, but before the next round.
  int64_t step_caught_up(int64_t step, const Standing& standing,
                         collective::Decisions& decisions) override;
  int64_t left_to_others(int64_t before, int64_t step) const override { return step - before; }

  bool may_leave(const Standing& /*standing*/, bool syncs) const override { return syncs; }

  int64_t steps_since(int64_t fragment, int64_t step) const override;
  std::vector<OwnRound> on_their_way(int64_t step) const override;
  bool sends_again() const override { return delay_ > 0; }
  bool numbers_anew() const override { return false; }

 private:
  bool is_last(int64_t step) const { return step == last_step_; }
  bool is_due(const OwnRound& own, int64_t step) const {
    return is_last(step) || own.step + delay_ <= step;
  }
  int64_t next_due(int64_t step) const;
  /// What is sent of the fragment after `step`, at which it is due.
  OwnRound sent(int64_t fragment, int64_t step) const;
  std::optional<OwnRound> to_begin(const Standing& standing, int64_t step) const;

  int64_t last_step_;
  int64_t keep_every_;
  int64_t num_fragments_;
  int64_t delay_;
  std::optional<method::FragmentSchedule> schedule_;  // None: there is nobody to agree with.
};

}  // namespace atl::rounds
