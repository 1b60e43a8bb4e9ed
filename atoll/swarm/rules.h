#pragma once
// The rules that coordinator and members share, as functions of their arguments alone.
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/name.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {

using atl::is_valid_name;
using atl::printable;

/// Equal shares of the segments for `num_members` owners; where there are few some are 0.
std::vector<int64_t> equal_shares(int64_t num_segments, int64_t num_members);

/// Shares for owners whose lines carry `rates` (bytes per second): in proportion to what each line
/// has left, so that all are done at the same time. To own the share s of n members costs a member
/// 1 + (n - 2) s of the fragment in each direction: its contribution to the other owners, and the
/// mean of its share to everybody. Equal where a rate is 0.
std::vector<int64_t> shares_by_rate(int64_t num_segments, const std::vector<int64_t>& rates);

/// Fewer than so many contributions are not compared: it would not show which of them is wrong. Nor
/// are those of more members: the pairs become too many to tell.
constexpr size_t kFewestCompared = 4;
constexpr size_t kMostCompared = 64;

/// Of a round of so many members: how many products Measures has.
constexpr size_t num_products(size_t num_members) {
  const bool are_told = num_members >= kFewestCompared && num_members <= kMostCompared;
  return are_told ? num_members * (num_members + 1) / 2 : 0;
}

/// How many segments those values are.
int64_t num_segments(int64_t count, int64_t segment_values);

/// A round waits for so long in all for links between its members to be made again.
constexpr Duration kLongestWaitForLinks = std::chrono::seconds(15);

/// Pairs of members by number, the lower one first.
using Pairs = std::set<std::pair<int32_t, int32_t>>;
inline bool is_of(const Pairs::value_type& pair, int32_t number) {
  return pair.first == number || pair.second == number;
}

/// Whether it is among those, whose numbers rise.
bool has(const std::vector<int32_t>& members, int32_t number);

/// Whether none of these pairs is of two of the members.
bool reach_each_other(const std::vector<int32_t>& members, const Pairs& no_links);

/// Of `members`, who have all begun the round, those that can exchange it; pairs in `no_links`
/// cannot reach each other. Of each such pair one is left out: who lacks most others, then who has
/// least weight. Nobody is left out who reaches all that take part.
std::vector<int32_t> plan_members(std::vector<int32_t> members,
                                  const std::map<int32_t, Begin>& begun, const Pairs& no_links);

/// An island's checkpoints: step -> digest of the global parameters.
using Checkpoints = std::map<int64_t, std::string>;

using Checkpoint = std::pair<int64_t, std::string>;

/// The highest step that all hold with the same digest, and that.
std::optional<Checkpoint> newest_common_checkpoint(const std::vector<Checkpoints>& held);

/// From which least is lost. Of those that have all that was committed, from `committed_step` to
/// `last_step`, the one that most hold; if there is none, the newest that anybody holds.
std::optional<Checkpoint> newest_checkpoint(const std::vector<Checkpoints>& held,
                                            int64_t committed_step, int64_t last_step);

/// Of the checkpoints of these steps, which at least so many hold, the one that most do; of several
/// the newest. Where those of one step differ, the one that most hold; nothing tells which is right
/// of two that equally many hold, and neither counts.
std::optional<Checkpoint> most_held_checkpoint(const std::vector<Checkpoints>& held,
                                               int64_t first_step, int64_t last_step,
                                               int64_t least_holders);

/// What is wrong with the numbers in one Begin ("began round -3"); empty if nothing.
std::string fault_of(const Begin& begin);

/// How two members' Begin of one round contradict each other; empty if they do not.
std::string difference_of(const Begin& a, const Begin& b);

/// The place of a member in an attempt.
std::optional<int32_t> rank_in(const OpenAttempt& attempt, int32_t number);

/// What is wrong with an attempt for the member of this number that sent `begin`; empty if nothing.
std::string fault_of(const OpenAttempt& attempt, const Begin& begin, int32_t number);

/// What is wrong with the numbers in one Prepared; empty if nothing.
std::string fault_of(const Prepared& prepared);

/// What is wrong with the numbers in one Commit; empty if nothing.
std::string fault_of(const Commit& commit);

}  // namespace atl::swarm
