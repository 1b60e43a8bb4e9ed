#pragma once
// Pace `elastic` for a member: rounds are begun when the run calls them, one at a time, round r for
// fragment r mod P, and training goes on until the result is there. What a member learns meanwhile
// stays its own, on top of what is published.
#include <optional>

#include "atoll/rounds/elastic_clock.h"
#include "atoll/rounds/pace.h"

namespace atl::rounds {

class Elastic final : public Pace {
 public:
  Elastic(const PaceOptions& options, const method::SyncOptions& sync, Standing& standing,
          collective::Decisions& decisions);

  int64_t step_after(int64_t step) override;
  int64_t published_step(int64_t /*step*/) const override { return clock_.committed_step(); }
  bool is_kept(int64_t /*step*/, bool has_synced) const override {
    return has_synced && clock_.crossed(keep_every_);
  }
  bool syncs_after(int64_t /*step*/, bool /*lands*/) const override { return true; }
  /// What others take meanwhile is the run's too.
  bool fits(int64_t /*num_own*/, int64_t /*step*/) const override { return true; }
  int64_t number(int64_t /*fragment*/, int64_t round, int64_t /*step*/) const override {
    return round / num_fragments_ + 1;
  }

  /// What was missed comes before a round is begun: else its values may rest on states of different
  /// rounds.
  Result<std::optional<Task>> next(int64_t step) override;
  /// An own round comes before any later one. Nothing is behind a stop, and nothing more is taken
  /// where what is published now is to be kept.
  std::optional<Task> next_missed() override;
  CaughtUp caught_up(int64_t step) override;
  Fate taken(const collective::Commit& commit, Fate fate) override;

  /// A checkpoint holds what was published, and nothing is on its way. Rounds are counted from 0
  /// again.
  std::vector<OwnRound> resumed(int64_t step) override;
  void joined(int64_t step, int64_t last_round) override;

 private:
  bool has_last_rounds() const;

  int64_t last_step_;
  int64_t keep_every_;
  int64_t num_fragments_;
  ElasticClock clock_;
  std::optional<collective::DueRound> due_;  // Is to be begun.
  int64_t last_round_ = -1;                  // Of the run; -1: not known.
  bool is_catching_up_ = false;  // Something that was missed is taken since the last step.
};

}  // namespace atl::rounds
