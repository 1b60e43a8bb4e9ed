#pragma once
// Pace `elastic`: rounds come when the islands together have trained on enough, whoever did it, and
// nobody waits for them. The run's step is what was committed, in global batches. Round r is of
// fragment r mod P; at the end of the run, and at a stop, P rounds follow one another at once, so
// that what was learned is in all fragments. The run's last P steps are those of its last P rounds.
//
// Invariants: one round is called at a time, and the same one in every term; each commit has a
// later step than the one before it, so that a checkpoint's step says which commits are in it.
#include <map>

#include "atoll/coordinator/pace.h"

namespace atl::swarm {

class Elastic final : public Pace {
 public:
  explicit Elastic(CoordinatorOptions options) : options_(std::move(options)) {}

  void begin(const Book& book) override;
  /// Each fragment is in one more round, which nobody has begun yet.
  void stop(const Book& book, const OpenRounds& rounds) override;
  bool is_stopping() const override { return stop_round_.has_value(); }
  bool stops_with(const Committed& committed) const override;

  bool call(const Book& book, const Roster& roster, Time now) override;
  std::optional<Due> due() const override { return due_; }
  std::string objection_to(const Begin& begin, const Book& book) const override;
  bool note_begin(int32_t member, const Book& book, const Roster& roster, Time now) override;
  void settle(int64_t round) override;
  int64_t step_after(const Round& round, const Book& book) const override;

  /// Three times the delay that is usual of the slowest, in bounds.
  Time grace_ends(const std::vector<int32_t>& awaited) const override;
  bool can_be_computed_again() const override { return false; }
  bool has_graces() const override { return true; }
  /// Rounds go on without it, each after a while.
  Time idle_since(const Seat& seat, const Round& /*round*/) const override {
    return seat.trained_at();
  }

  /// It counts as much as it has trained, at once, and goes on from the last commit.
  Reinstated reinstated(const Seat& /*seat*/, const Book& /*book*/, const Roster& /*roster*/,
                        const OpenRounds& /*rounds*/) const override {
    return {};
  }
  void forget(int32_t member) override { islands_.erase(member); }

  int64_t report_every(const Book& book) const override;
  void note_trained(int32_t member, const Seat& seat, const Book& book, Time now) override;
  /// Each gets rows at its own speed.
  std::vector<Granted> grants(const Book& book, const Roster& roster,
                              bool rounds_wait) const override;

 private:
  struct Island {
    int64_t num_trained_at_call = 0;  // When the last round was called.
    double begin_delay_s = -1;        // From a call to its Begin, smoothed; < 0: not known.
    int64_t rows_ahead = 0;           // Units that it trains on in kRowsAhead; 0: not known.
    Time measured{};                  // When rows_ahead was measured.
    int64_t num_trained_then = 0;     // Units that it had trained on when that was measured.
  };

  /// What the next round is: the same in every term.
  Due next_due(const Book& book) const;
  /// The rounds that come are the run's last ones.
  bool is_ending(const Book& book) const;
  void make_due(const Book& book, const Roster& roster, Time now);
  int64_t rows_ahead(int32_t member) const;

  CoordinatorOptions options_;
  std::optional<Due> due_;
  Time called_{};                      // When that was.
  std::optional<int64_t> stop_round_;  // The first whose commit all stop with.
  std::map<int32_t, Island> islands_;  // Members of whom something is known.
};

}  // namespace atl::swarm
