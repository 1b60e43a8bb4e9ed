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
  Elastic(const PaceOptions& options, const method::SyncOptions& sync);

  void start(int64_t step, int64_t last_round) override;
  int64_t step_after(int64_t step) override;
  int64_t published_step(int64_t /*step*/) const override { return clock_.committed_step(); }
  bool is_kept(int64_t /*step*/, bool has_synced) const override {
    return has_synced && clock_.crossed(keep_every_);
  }
  bool syncs_after(int64_t /*step*/, bool /*lands*/) const override { return true; }
  /// What others take meanwhile is the run's too.
  bool fits(int64_t /*num_own*/, int64_t /*step*/) const override { return true; }

  Result<std::optional<Task>> next(const Standing& standing, int64_t step,
                                   collective::Decisions& decisions) override;
  int64_t number(int64_t /*fragment*/, int64_t round, int64_t /*step*/) const override {
    return round / num_fragments_ + 1;
  }
  Fate counted() const override { return Fate::kOvertaken; }
  void committed(int64_t step, int64_t steps_in_none) override {
    clock_.committed(step, steps_in_none);
  }
  bool unlearns_all() const override { return true; }

  bool absorbs_first() const override { return true; }
  std::optional<int64_t> settled_before(const collective::Commit& missed,
                                        const Standing& standing) const override;
  /// Nothing is behind a stop.
  bool is_over(const Standing& standing) const override { return standing.stops(); }
  bool rests() const override { return clock_.crossed(keep_every_); }
  int64_t step_behind(int64_t step, int64_t /*committed*/) const override { return step; }
  int64_t step_caught_up(int64_t step, const Standing& standing,
                         collective::Decisions& decisions) override;
  int64_t left_to_others(int64_t /*before*/, int64_t /*step*/) const override { return 0; }

  /// A round that it has begun it must still take: others may count on it to hold that.
  bool may_leave(const Standing& standing, bool /*syncs*/) const override {
    return standing.has_counted() && standing.open().empty();
  }

  /// A checkpoint holds what was published, and nothing is on its way.
  int64_t steps_since(int64_t /*fragment*/, int64_t /*step*/) const override { return 0; }
  std::vector<OwnRound> on_their_way(int64_t /*step*/) const override { return {}; }
  bool sends_again() const override { return false; }
  bool numbers_anew() const override { return true; }

 private:
  bool has_last_rounds(const Standing& standing) const;

  int64_t last_step_;
  int64_t keep_every_;
  int64_t num_fragments_;
  ElasticClock clock_;
  std::optional<collective::DueRound> due_;  // Is to be begun.
  int64_t last_round_ = -1;                  // Of the run; -1: not known.
};

}  // namespace atl::rounds
