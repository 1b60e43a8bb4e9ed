#pragma once
// What was decided for a member and what it was given, until it asks: between who runs the engine
// and who trains. Not thread-safe; the session's is under its mutex.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "atoll/collective/averager.h"
#include "atoll/swarm/leases.h"

namespace atl::collective {

class Mailbox final : public Decisions {
 public:
  /// `begun`: begin() was called for its round.
  void committed(const Commit& commit, bool begun) {
    if (due_ && due_->round <= commit.round) due_.reset();
    if (begun || begun_.contains(commit.round)) {
      commits_[commit.round] = commit;
    } else {
      missed_.push_back(commit);
    }
  }
  void called(const DueRound& due) { due_ = due; }
  void reinstated(int64_t step) { position_ = step; }
  void leased(const std::vector<swarm::Units>& units) {
    units_.insert(units_.end(), units.begin(), units.end());
  }

  /// From here on the round's commit is for take_commit().
  void note_begun(int64_t round) {
    begun_.insert(round);
    const auto missed = std::ranges::find(missed_, round, &Commit::round);
    if (missed == missed_.end()) return;
    commits_[round] = std::move(*missed);
    missed_.erase(missed);
  }
  bool is_decided(int64_t round) const override { return commits_.contains(round); }
  /// Of a round that has one.
  Commit take_commit(int64_t round) {
    begun_.erase(round);
    return std::move(commits_.extract(round).mapped());
  }
  std::optional<Commit> take_missed() override {
    if (missed_.empty()) return std::nullopt;
    Commit commit = std::move(missed_.front());
    missed_.pop_front();
    return commit;
  }
  std::optional<DueRound> take_due() override { return std::exchange(due_, std::nullopt); }
  std::optional<int64_t> take_position() override { return std::exchange(position_, std::nullopt); }
  std::optional<int64_t> take_unit() {
    if (units_.empty()) return std::nullopt;
    swarm::Units& front = units_.front();
    const int64_t unit = front.first;
    front = {front.at(1), front.stride, front.count - 1};
    if (front.count == 0) units_.pop_front();
    return unit;
  }
  bool has_units() const { return !units_.empty(); }

 private:
  std::set<int64_t> begun_;            // Rounds whose commits were not taken.
  std::map<int64_t, Commit> commits_;  // Of those.
  std::deque<Commit> missed_;          // The others.
  std::optional<DueRound> due_;
  std::optional<int64_t> position_;
  std::deque<swarm::Units> units_;
};

}  // namespace atl::collective
