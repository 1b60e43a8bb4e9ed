#include "atoll/swarm/member_rounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

void MemberRounds::start(const Start& start) {
  number_ = start.number;
  num_commits_ = start.num_commits;
  num_caught_up_ = start.joins ? 0 : num_commits_;
  for (const Held& held : start.held) committed_[held.fragment] = held.round;
}

bool MemberRounds::catch_up() {
  if (is_level()) return false;
  num_caught_up_ = num_commits_;
  return true;
}

void MemberRounds::begin(const Begin& begin) {
  ATOLL_CHECK(!has_begun(begin.header.round));
  ATOLL_CHECK(fault_of(begin).empty(), fault_of(begin));
  rounds_[begin.header.round] = {.begin = begin};
}

bool MemberRounds::is_to_begin(const Due& due) const {
  if (has_begun(due.header.round)) return false;
  const auto committed = committed_.find(due.fragment);
  return committed == committed_.end() || committed->second < due.header.round;
}

std::string MemberRounds::objection_to(const OpenAttempt& attempt) const {
  const auto found = rounds_.find(attempt.header.round);
  if (found == rounds_.end() || attempt.header.attempt <= found->second.attempt) {
    return fmt::format("attempt {} of round {}, which is not the next of one that was begun",
                       attempt.header.attempt, attempt.header.round);
  }
  return fault_of(attempt, found->second.begin, number_);
}

void MemberRounds::open(const OpenAttempt& attempt) {
  Round& round = rounds_.at(attempt.header.round);
  round.stage = Stage::kExchanging;
  round.attempt = attempt.header.attempt;
  round.digest = {};
  // Whose contribution was left out abstains from there on.
  round.begin.weight = attempt.weights[static_cast<size_t>(*rank_in(attempt, number_))];
}

bool MemberRounds::prepare(int64_t round, int32_t attempt, const Digest& digest) {
  const auto found = rounds_.find(round);
  if (found == rounds_.end() || found->second.attempt != attempt) return false;
  if (found->second.stage != Stage::kExchanging) return false;
  found->second.stage = Stage::kPrepared;
  found->second.digest = digest;
  return true;
}

std::vector<Begin> MemberRounds::say_again() {
  std::vector<Begin> all;
  for (auto& [number, round] : rounds_) {
    round.stage = Stage::kBegun;
    round.begin.header.attempt = round.attempt;
    all.push_back(round.begin);
  }
  return all;
}

std::string MemberRounds::objection_to(const Commit& commit) const {
  if (commit.index > num_commits_) {
    return fmt::format("commit {}, where {} is next", commit.index, num_commits_);
  }
  return fault_of(commit);
}

bool MemberRounds::commit(const Commit& commit) {
  num_commits_ += 1;
  committed_[commit.held.fragment] = commit.held.round;
  const auto found = rounds_.find(commit.held.round);
  if (found == rounds_.end()) return false;
  const bool has_result = found->second.attempt == commit.header.attempt &&
                          found->second.digest == commit.held.digest &&
                          std::ranges::find(commit.members, number_) != commit.members.end();
  rounds_.erase(found);
  if (has_result && num_caught_up_ + 1 == num_commits_) num_caught_up_ = num_commits_;
  return has_result;
}

}  // namespace atl::swarm
