#pragma once
// Between a strategy and the others, in lockstep: what is on this island's disk comes from there.
// An island that was killed goes on from its checkpoint and computes its steps again; the rounds
// that it began then and that were committed it does not exchange again: it takes their results
// from rounds/, or, where the last ones did not reach the disk, from the others. So it ends with
// the bits that it had. It notes what it sends in the diary, and finds there whether it sends the
// same again: another processor's sums may differ.
//
// Thread rule: as Averager.
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "atoll/collective/averager.h"
#include "atoll/run/diary.h"
#include "atoll/run/round_log.h"

namespace atl::island {

class RecordedRounds final : public collective::Averager {
 public:
  /// References outlive it.
  RecordedRounds(collective::Averager& others, run::Diary& diary)
      : others_(others), diary_(diary) {}

  /// Before the strategy begins anything: these rounds come from disk, in this order. Until all of
  /// them were waited for nothing is said to the others.
  void take_from_disk(std::span<const run::LoggedRound> rounds);
  bool has_left() const { return !on_disk_.empty(); }
  /// Once has_left() is over: tells the others what was begun meanwhile. `is_member` as before,
  /// this island has begun the rounds that have its part, or is about to.
  void go_on(bool is_member);

  int num_members() const override { return others_.num_members(); }
  void begin(collective::Contribution contribution) override;
  Result<collective::Commit> wait(int64_t round) override;
  std::optional<collective::Commit> take_missed() override;
  std::optional<collective::DueRound> take_due() override { return others_.take_due(); }
  bool is_decided(int64_t round) const override { return others_.is_decided(round); }
  std::optional<int64_t> take_position() override;
  void serve_state(collective::StateProvider provider) override {
    others_.serve_state(std::move(provider));
  }
  collective::ExchangeStats stats() const override { return others_.stats(); }

 private:
  struct Begun {
    int64_t weight = 0;
    bool is_another = false;  // Than what was sent before.
  };
  void forward(collective::Contribution contribution);
  Result<collective::Commit> read(const run::LoggedRound& logged, const Begun& begun) const;

  collective::Averager& others_;
  run::Diary& diary_;
  std::deque<run::LoggedRound> on_disk_;             // To be waited for.
  std::map<int64_t, Begun> begun_;                   // Of those, by round.
  std::vector<collective::Contribution> held_back_;  // Of later ones.
  bool is_member_ = false;
  std::map<int64_t, collective::Commit> own_missed_;  // With this island's part, not begun yet.
  std::deque<collective::Commit> missed_;             // The others, which come behind those.
};

}  // namespace atl::island
