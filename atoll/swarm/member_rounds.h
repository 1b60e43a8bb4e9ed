#pragma once
// A member's side of the rounds: those that it has begun and that are not decided yet, which
// commits it has heard of, and of how many it has the results. Pure.
//
// Invariants: commits are heard of in the order of their index, each once; what is decided is not
// open; it has the results of no more commits than it has heard of.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/swarm/messages.h"

namespace atl::swarm {

class MemberRounds {
 public:
  /// The member's number is known, and what was committed until then.
  void start(const Start& start);
  int32_t number() const { return number_; }
  uint64_t num_commits() const { return num_commits_; }
  uint64_t num_caught_up() const { return num_caught_up_; }
  bool is_level() const { return num_caught_up_ == num_commits_; }
  /// All results are here now. False: so it was.
  bool catch_up();

  bool has_begun(int64_t round) const { return rounds_.contains(round); }
  /// With its header; not begun yet.
  void begin(const Begin& begin);
  /// Whether a called round is one to begin: neither begun nor decided.
  bool is_to_begin(const Due& due) const;
  /// What is wrong with that; empty if nothing.
  std::string objection_to(const OpenAttempt& attempt) const;
  void open(const OpenAttempt& attempt);
  /// False: another attempt was opened meanwhile, or the round was decided.
  bool prepare(int64_t round, int32_t attempt, const Digest& digest);
  /// All that were begun, as a coordinator that has come back must hear them: their exchanges are
  /// over, but what was prepared is remembered until the next attempt.
  std::vector<Begin> say_again();
  /// It takes part in no round any more.
  void drop() { rounds_.clear(); }

  bool is_known(const Commit& commit) const { return commit.index < num_commits_; }
  /// What is wrong with one that is not known; empty if nothing.
  std::string objection_to(const Commit& commit) const;
  /// Whether its result is here: this member has prepared it, in whatever term that was.
  bool commit(const Commit& commit);

 private:
  enum class Stage : uint8_t { kBegun, kExchanging, kPrepared };
  struct Round {
    Stage stage = Stage::kBegun;
    Begin begin;
    int32_t attempt = -1;
    Digest digest{};
  };

  int32_t number_ = 0;
  std::map<int64_t, Round> rounds_;
  std::map<int32_t, int64_t> committed_;  // The newest round, by fragment.
  uint64_t num_commits_ = 0;
  uint64_t num_caught_up_ = 0;
};

}  // namespace atl::swarm
