#pragma once
// Pace `lockstep`: all islands reach the same steps, and begin a round at the one that the method
// names. Nobody calls a round, and nobody is left behind by one: all who are live are waited for.
#include "atoll/coordinator/pace.h"

namespace atl::swarm {

class Lockstep final : public Pace {
 public:
  explicit Lockstep(const CoordinatorOptions& options);

  void begin(const Book& book) override;
  void stop(const Book& book, const OpenRounds& rounds) override;
  bool is_stopping() const override { return stop_index_.has_value(); }
  bool stops_with(const Committed& committed) const override;

  bool call(const Book& /*book*/, const Roster& /*roster*/, Time /*now*/) override { return false; }
  std::optional<Due> due() const override { return std::nullopt; }
  std::string objection_to(const Begin& /*begin*/, const Book& /*book*/) const override {
    return {};
  }
  bool note_begin(int32_t /*member*/, const Book& /*book*/, const Roster& /*roster*/,
                  Time /*now*/) override {
    return false;
  }
  void settle(int64_t /*round*/) override {}
  /// Its own.
  int64_t step_after(const Round& round, const Book& book) const override;

  Time grace_ends(const std::vector<int32_t>& /*awaited*/) const override { return Time::max(); }
  bool can_be_computed_again() const override { return true; }
  bool has_graces() const override { return false; }
  /// As long as it trains it is on its way there.
  Time idle_since(const Seat& seat, const Round& round) const override;

  /// A newcomer is waited for after a full period; who was away goes on where the others are.
  Reinstated reinstated(const Seat& seat, const Book& book, const Roster& roster,
                        const OpenRounds& rounds) const override;
  void forget(int32_t /*member*/) override {}

  int64_t report_every(const Book& /*book*/) const override { return 0; }
  void note_trained(int32_t /*member*/, const Seat& /*seat*/, const Book& /*book*/,
                    Time /*now*/) override {}
  /// Those who are level get rows together, dealt in turn; who is behind alone.
  std::vector<Granted> grants(const Book& book, const Roster& roster,
                              bool rounds_wait) const override;

 private:
  int64_t num_fragments_;
  int64_t steps_ahead_;
  std::optional<uint64_t> stop_index_;  // Of the first commit that all stop with.
};

}  // namespace atl::swarm
