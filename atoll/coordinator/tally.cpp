#include "atoll/coordinator/tally.h"

#include <fmt/format.h>

#include <algorithm>

namespace atl::swarm {
namespace {

constexpr size_t kPaceCommits = 64;   // Enough to even out; some methods have many a second.
constexpr int64_t kAlarmCommits = 3;  // One that is missed may be bad luck.

}  // namespace

int64_t Tally::Tokens::most() const {
  int64_t most = 0;
  for (const auto& [fragment, tokens] : by_fragment) most = std::max(most, tokens);
  return most;
}

double Tally::share_of(const CountedCommit& commit, const std::set<int32_t>& here) const {
  double sum = 0;
  double num_bringing = 0;
  std::set<int32_t> absent = here;
  for (const auto& [number, weight] : commit.weights) {
    sum += static_cast<double>(weight);
    if (weight > 0) num_bringing += 1;
    weight > 0 ? absent.erase(number) : absent.insert(number).second;
  }
  if (sum == 0) return 0;
  double missing = 0;
  for (const int32_t number : absent) {
    const auto found = members_.find(number);
    const bool known = found != members_.end() && found->second.usual > 0;
    missing += known ? static_cast<double>(found->second.usual) : sum / num_bringing;
  }
  return sum / (sum + missing);
}

void Tally::add(const CountedCommit& commit, const std::set<int32_t>& here, Time now) {
  averaged_share_ = share_of(commit, here);
  participating_ = std::ssize(commit.weights);
  for (const int32_t number : here) {
    members_[number].missed += 1;
    members_[number].empty += 1;
  }
  for (const auto& [number, weight] : commit.weights) {
    Member& member = members_[number];
    member.last_round = commit.round;
    member.missed = 0;
    if (weight == 0) continue;
    member.empty = 0;
    member.usual = weight;
    member.tokens.by_fragment[commit.fragment] += weight;
    tokens_.by_fragment[commit.fragment] += weight;
  }
  pace_.emplace_back(now, commit.step);
  if (pace_.size() > kPaceCommits) pace_.pop_front();
}

void Tally::fill(RunStatus& status, Time now) const {
  status.committed_tokens = tokens_.most();
  status.participating = participating_;
  status.averaged_share = averaged_share_;
  for (IslandStatus& island : status.islands) {
    if (!island.number) continue;
    const auto found = members_.find(static_cast<int32_t>(*island.number));
    if (found == members_.end()) continue;
    island.tokens = found->second.tokens.most();
    island.last_round = found->second.last_round;
  }
  status.alarm = alarm(status);
  fill_pace(status, now);
}

void Tally::fill_pace(RunStatus& status, Time now) const {
  if (pace_.size() < 2 || status.state == RunState::kOver) return;
  const auto& [first, first_step] = pace_.front();
  const auto& [last, last_step] = pace_.back();
  double rounds = static_cast<double>(pace_.size()) - 1;
  const double steps_per_round = static_cast<double>(last_step - first_step) / rounds;
  double span = seconds(last - first);
  const double wait = seconds(now - last);
  if (wait > span / rounds) {  // The next round is late: that too is its pace.
    rounds += 1;
    span += wait;
  }
  if (span <= 0) return;
  status.rounds_per_minute = 60 * rounds / span;
  const double steps_per_s = steps_per_round * rounds / span;
  if (!status.steps || steps_per_s <= 0) return;
  const auto steps_left = static_cast<double>(*status.steps - last_step);
  status.seconds_left = std::max(0.0, steps_left / steps_per_s - std::min(wait, span / rounds));
}

std::string Tally::alarm(const RunStatus& status) const {
  std::string sentence;
  for (const IslandStatus& island : status.islands) {
    if (!island.number || island.state != IslandState::kTraining) continue;
    const auto found = members_.find(static_cast<int32_t>(*island.number));
    if (found == members_.end() || found->second.empty < kAlarmCommits) continue;
    const Member& member = found->second;
    sentence +=
        fmt::format("{}island '{}' is live, but ", sentence.empty() ? "" : "; ", island.name);
    sentence += member.missed >= kAlarmCommits
                    ? fmt::format("took no part in the last {} commits", member.missed)
                    : fmt::format("brought nothing to the last {} commits", member.empty);
  }
  return sentence;
}

}  // namespace atl::swarm
