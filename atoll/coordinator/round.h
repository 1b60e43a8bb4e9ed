#pragma once
// A round that members have begun and that is not decided yet: who has begun it, the attempt that
// is open, who has prepared that; and all of a run's. Pure: the coordinator asks it what is to be
// done, and says who is there.
//
// Invariants: whatever members have begun is about the same values; the members of an attempt have
// begun; who was left out has weight 0 from then on; attempts only rise. An attempt is *whole*
// until one of its members lets go of it, is a member no more or cannot reach another: what is
// not whole is never committed.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/coordinator/book.h"
#include "atoll/coordinator/outliers.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

class Round {
 public:
  /// By number. Of weight 0 who was left out.
  const std::map<int32_t, Begin>& begun() const { return begun_; }
  bool has_begun(int32_t member) const { return begun_.contains(member); }
  bool have_begun(const std::vector<int32_t>& members) const;
  /// Since when those who have not begun it are waited for.
  Time waits_since() const { return waits_since_; }
  /// The one that is open; -1: none was yet.
  int32_t attempt() const { return attempt_; }
  /// Of that attempt: numbers, rising.
  const std::vector<int32_t>& members() const { return members_; }
  bool takes_part(int32_t member) const { return has(members_, member); }
  bool is_whole() const { return is_whole_; }
  const std::map<int32_t, Prepared>& prepared() const { return prepared_; }
  bool is_left_out(int32_t member) const { return left_out_.contains(member); }

  /// Another member whose Begin is about other values, and how they differ.
  std::optional<std::pair<int32_t, std::string>> contradiction(int32_t member,
                                                               const Begin& begin) const;
  /// There is no contradiction. False: it said so before.
  bool begin(int32_t member, Begin begin, Time now);
  /// The next attempt, of those who have begun: without its header's run and term, and its view.
  OpenAttempt open(int64_t number, std::vector<int32_t> members);
  /// What is wrong with that of a member of the open attempt; empty if nothing.
  std::string objection_to(int32_t member, const Prepared& prepared) const;
  /// Of the open attempt, without objection.
  void prepare(int32_t member, const Prepared& prepared);
  /// Two of them cannot reach each other: the open attempt is over where it has both.
  void break_link(const Pairs::value_type& pair);
  /// Too few of those who have begun reach each other: the open attempt is over, and the
  /// next one waits for links.
  void break_off();
  bool lacks_links() const { return lacks_links_; }
  /// Whether it may wait for links that are made again: in all not for long, whatever breaks.
  bool may_wait_for_links(Time now);
  /// It abstains from the attempts that follow; the open one is over.
  void leave_out(int32_t member);
  /// It has come back without what it was exchanging; what it has prepared it still has.
  void let_go(int32_t member);
  /// It is a member no more.
  void forget(int32_t member);

  /// All who are left of the open attempt have completed it: it stands, as who is lost since has
  /// sent its part.
  bool is_complete(const std::set<int32_t>& live) const;
  /// The open attempt can still be completed, by members who could all be in another now.
  bool goes_on(const std::set<int32_t>& live, const std::vector<int32_t>& possible) const;
  /// Of what was contributed to the attempt, by what its members say. The part of who was lost
  /// before it could say is not known: then a norm is at least this.
  std::vector<Outliers::Contributed> contributed() const;
  /// In the order of those.
  Outliers::Compared compared() const;
  /// As the open attempt made it, all of whose digests are equal: but for its index, with the step
  /// of its snapshots.
  Committed result() const;

 private:
  std::map<int32_t, Begin> begun_;
  Time waits_since_{};
  std::optional<Time> waits_for_links_since_;
  int32_t attempt_ = -1;
  std::vector<int32_t> members_;
  bool is_whole_ = true;
  bool lacks_links_ = false;
  std::map<int32_t, Prepared> prepared_;
  std::set<int32_t> left_out_;
};

/// What a member began of a round that counted it so: it abstains where it was left out.
Begin as_in(const Committed& committed, int32_t member, Begin begin);

/// By number; at most kMost.
class OpenRounds {
 public:
  static constexpr size_t kMost = 256;  // Methods keep a handful open.

  const std::map<int64_t, Round>& all() const { return rounds_; }
  std::vector<int64_t> numbers() const;
  bool has(int64_t number) const { return rounds_.contains(number); }
  /// Nothing where it is not open.
  Round* find(int64_t number);
  Round& at(int64_t number) { return rounds_.at(number); }
  /// Somebody begins it; it may be open already.
  Round& begin(int64_t number);
  /// The highest that anybody has begun, decided or not; -1: none.
  int64_t highest() const { return highest_; }
  bool any_lacks_links() const;
  /// Commits, in their order, whose results are lost with all who had them: their members, who have
  /// all else, make them again before any other round is decided. Returns those that were being
  /// made.
  std::vector<Committed> make_again(std::vector<Committed> lost) {
    return std::exchange(lost_, std::move(lost));
  }
  /// Null: that round's is not among them.
  const Committed* lost(int64_t round) const;
  /// It may be decided now.
  bool is_next(int64_t round) const { return lost_.empty() || lost_.front().held.round == round; }
  /// Was committed. Rounds of its fragment that were left behind will never be.
  void settle(int64_t number, int32_t fragment);
  void let_go(int32_t member);
  void forget(int32_t member);

 private:
  std::map<int64_t, Round> rounds_;
  std::vector<Committed> lost_;
  int64_t highest_ = -1;
};

}  // namespace atl::swarm
