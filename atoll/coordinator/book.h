#pragma once
// What a coordinator must not forget: the run, its term, its members, the newest committed state of
// each fragment, who trained on which rows. It changes by records alone, and what a journal has
// kept of them makes it again: so a coordinator that was killed goes on where it was. Pure.
#include <concepts>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/coordinator/outliers.h"
#include "atoll/swarm/leases.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

/// A coordinator serves, under a term that no other had.
struct TermBegan {
  uint64_t term = 0;
};

/// A run begins, or begins again from an older checkpoint: later commits are void.
struct RunBegan {
  std::string run;
  int64_t start_step = 0;
  int64_t num_replicas = 0;                  // Units in a global batch.
  std::map<std::string, std::string> facts;  // Equal on all islands.
  std::string config;                        // The run's settings.
};

/// A new member; or one of that number and name that has come back, at this address.
struct Admitted {
  Peer peer;
};

/// For good: what it had not yet contributed is lost, and its rows are free.
struct Removed {
  int32_t number = 0;
};

/// So many units more for each of the members, dealt in turn.
struct Granted {
  std::vector<int32_t> numbers;
  int64_t count = 0;
};

struct Committed {
  uint64_t index = 0;
  int32_t attempt = 0;
  Held held;  // Names the round.
  int64_t count = 0;
  int64_t segment_values = 0;
  std::vector<int32_t> members;      // Numbers, rising.
  std::vector<int64_t> weights;      // By rank.
  std::vector<int64_t> num_trained;  // By rank: units of its leases that the snapshot had seen.
  /// By rank: of contributions, 0 for who did not count; empty where not all were told. Kept until
  /// the book has them.
  std::vector<double> norms;

  bool operator==(const Committed&) const = default;
};

/// A member whose work was complete: as Removed, but the run may be over with it.
struct Left {
  int32_t number = 0;
};

using Record = std::variant<TermBegan, RunBegan, Admitted, Removed, Granted, Committed, Left>;

/// Rows that a commit has consumed, to be given back should it become void.
struct Counted {
  int64_t step = 0;
  std::vector<Units> units;

  bool operator==(const Counted&) const = default;
};

class Book {
 public:
  /// Units that a record granted, by member.
  using Grants = std::map<int32_t, std::vector<Units>>;

  /// Throws InputError when the record contradicts what is known.
  Grants apply(const Record& record);

  bool has_begun() const { return !run_.empty(); }
  const std::string& run() const { return run_; }
  uint64_t term() const { return term_; }
  /// In which the run began, or began anew.
  uint64_t first_term() const { return first_term_; }
  int64_t start_step() const { return start_step_; }
  int64_t num_replicas() const { return num_replicas_; }
  const std::map<std::string, std::string>& facts() const { return facts_; }
  const std::string& config() const { return config_; }
  /// Those who were not removed, by number.
  const std::map<int32_t, Peer>& members() const { return members_; }
  /// Those of them who have left.
  const std::set<int32_t>& left() const { return left_; }
  int32_t next_number() const { return next_number_; }
  const LeaseBook& leases() const { return leases_; }
  /// By fragment; what has no commit yet is not there.
  const std::map<int32_t, Held>& held() const { return held_; }
  uint64_t num_commits() const { return num_commits_; }
  /// The last of what counted in a fragment's rounds.
  const Outliers::Norms& norms(int32_t fragment) const;
  /// The newest ones, oldest first; without norms.
  const std::deque<Committed>& history() const { return history_; }
  int64_t last_round() const { return last_round_; }
  /// Where the run stands: the start step if nothing is committed.
  int64_t last_step() const { return last_step_; }

  /// The book as it is, for a journal that is made short.
  Bytes contents() const;
  bool operator==(const Book&) const = default;

 private:
  Grants take(const TermBegan& record);
  Grants take(const RunBegan& record);
  Grants take(const Admitted& record);
  Grants take(const Removed& record);
  Grants take(const Granted& record);
  Grants take(const Committed& record);
  Grants take(const Left& record);
  void void_commits_after(int64_t step, int64_t num_replicas);
  void remember_norms(const Committed& record);
  friend Book read_book(std::span<const Bytes> journal);
  /// All but norms, as it was kept before there were any.
  friend void visit(auto& io, auto& m)
    requires std::same_as<std::remove_const_t<std::remove_reference_t<decltype(m)>>, Book>
  {
    io(m.run_, m.term_, m.first_term_, m.start_step_, m.num_replicas_, m.facts_, m.config_,
       m.members_, m.left_, m.next_number_, m.leases_, m.counted_, m.forgotten_step_, m.held_,
       m.num_commits_, m.history_, m.last_round_, m.last_step_);
  }

  std::string run_;
  uint64_t term_ = 0;
  uint64_t first_term_ = 0;
  int64_t start_step_ = 0;
  int64_t num_replicas_ = 0;
  std::map<std::string, std::string> facts_;
  std::string config_;
  std::map<int32_t, Peer> members_;
  std::set<int32_t> left_;
  int32_t next_number_ = 0;
  LeaseBook leases_;
  std::deque<Counted> counted_;  // By the newest commits of all beginnings, oldest first.
  int64_t forgotten_step_ = -1;  // Of the newest that is no longer in it.
  std::map<int32_t, Held> held_;
  uint64_t num_commits_ = 0;
  std::deque<Committed> history_;
  int64_t last_round_ = -1;
  int64_t last_step_ = 0;
  std::map<int32_t, Outliers::Norms> norms_;  // By fragment.
};

/// A record as a journal keeps it: a kind and the fields. The kind is the record's place in Record,
/// but for a round that was committed: that of its place had no norms.
Bytes encode(const Record& record);
constexpr uint8_t kCommittedKind = 7;

/// The book that a journal's entries make: Book::contents() may stand for all before it. Journals
/// from before norms were kept are read as well. Throws InputError when an entry is damaged.
Book read_book(std::span<const Bytes> journal);

}  // namespace atl::swarm
