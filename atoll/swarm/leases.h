#pragma once
// Who trains on which rows. Pure: the coordinator owns one, its journal makes it again.
//
// The data is an endless row of *units*, each the rows of one inner step of one island; unit u is
// place u mod R of step u / R of the global batches of R islands (data/batches.h). A lease gives a
// member units to train on, in order. They are consumed when a commit counts a snapshot that
// includes them, and never given out again; what a member held beyond that when it was removed is
// given out before any new unit. Among members that stay, with grants in turn, island i of R trains
// on exactly the rows that the global batches have for it.
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace atl::swarm {

/// Units first, first + stride, ..., `count` of them.
struct Units {
  int64_t first = 0;
  int64_t stride = 1;
  int64_t count = 0;

  int64_t at(int64_t i) const { return first + i * stride; }
  bool operator==(const Units&) const = default;
};

/// How many there are in a list.
int64_t num_units(std::span<const Units> list);

/// What one member has: units in the order in which it trains on them.
struct Leases {
  int64_t num_granted = 0;   // Ever, to this member.
  int64_t num_consumed = 0;  // The first of those granted.
  std::vector<Units> rest;   // Granted and not consumed.

  bool operator==(const Leases&) const = default;
};

class LeaseBook {
 public:
  LeaseBook() = default;
  /// Units before `first` are consumed.
  explicit LeaseBook(int64_t first) : next_(first), num_consumed_(first) {}

  /// `count` more units for each of `members`, dealt in turn in their order. By member.
  std::vector<std::vector<Units>> grant(std::span<const int32_t> members, int64_t count);
  /// A commit counts a snapshot of `member` for which it had trained on `num_trained` of its units,
  /// ever. Returns those of them that this commit consumes: none where another fragment's was
  /// newer. False values cannot come from a member that keeps the protocol: see is_possible().
  std::vector<Units> consume(int32_t member, int64_t num_trained);
  /// A commit that consumed them is void.
  void give_back(std::span<const Units> units);
  /// Whether a member may say that it has trained on so many units.
  bool is_possible(int32_t member, int64_t num_trained) const;
  /// Of what the member has, all behind its first `num_known` units: what it has not heard of.
  std::vector<Units> behind(int32_t member, int64_t num_known) const;
  /// Takes back what the member has not consumed.
  void revoke(int32_t member);
  /// Takes back what nobody has consumed; the lowest units are given out first. Those before
  /// `first` count as consumed.
  void revoke_all(int64_t first = 0);

  const std::map<int32_t, Leases>& members() const { return members_; }
  const std::vector<Units>& returned() const { return returned_; }
  /// The first unit that nobody was given yet.
  int64_t next() const { return next_; }
  /// By all members that ever were, and before the first unit.
  int64_t num_consumed() const { return num_consumed_; }
  /// Units that the member says it has trained on, and no commit has counted.
  int64_t num_open(int32_t member, int64_t num_trained) const;
  bool operator==(const LeaseBook&) const = default;

  /// For a journal: names all that it is made of.
  friend void visit(auto& io, LeaseBook& m) {
    io(m.members_, m.returned_, m.next_, m.num_consumed_);
  }
  friend void visit(auto& io, const LeaseBook& m) {
    io(m.members_, m.returned_, m.next_, m.num_consumed_);
  }

 private:
  /// The next `count` units, those that came back first.
  std::vector<Units> draw(int64_t count);

  std::map<int32_t, Leases> members_;
  std::vector<Units> returned_;
  int64_t next_ = 0;
  int64_t num_consumed_ = 0;
};

}  // namespace atl::swarm
