#pragma once
// The rules that coordinator and members share, as functions of their arguments alone.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/swarm/messages.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {

/// 1 to 64 of letters, digits, '-', '_' and '.'.
bool is_valid_name(std::string_view name);

/// A stranger's text, fit for a log: other than printable ASCII becomes '?', and it is cut at 400.
std::string printable(std::string_view text);

/// Equal shares of the segments for `num_members` owners; where there are few some are 0.
std::vector<int64_t> equal_shares(int64_t num_segments, int64_t num_members);

/// How many segments those values are.
int64_t num_segments(int64_t count, int64_t segment_values);

/// The highest step that all hold with the same digest.
std::optional<int64_t> newest_common_checkpoint(
    const std::vector<std::map<int64_t, std::string>>& checkpoints);

/// What is wrong with the numbers in one Begin ("began round -3"); empty if nothing.
std::string fault_of(const Begin& begin);

/// How two members' Begin of one round contradict each other; empty if they do not.
std::string difference_of(const Begin& a, const Begin& b);

/// The place of a member in an attempt.
std::optional<int32_t> rank_in(const OpenAttempt& attempt, int32_t number);

/// What is wrong with an attempt for the member of this number that sent `begin`; empty if nothing.
std::string fault_of(const OpenAttempt& attempt, const Begin& begin, int32_t number);

/// What is wrong with the numbers in one Commit; empty if nothing.
std::string fault_of(const Commit& commit);

}  // namespace atl::swarm
