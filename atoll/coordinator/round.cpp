#include "atoll/coordinator/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace atl::swarm {

bool Round::have_begun(const std::vector<int32_t>& members) const {
  return std::ranges::all_of(members, [&](int32_t member) { return has_begun(member); });
}

std::optional<std::pair<int32_t, std::string>> Round::contradiction(int32_t member,
                                                                    const Begin& begin) const {
  for (const auto& [other, first] : begun_) {
    if (other == member) continue;
    std::string difference = difference_of(first, begin);
    if (difference.empty()) break;  // The others are as that one.
    return std::pair(other, std::move(difference));
  }
  return std::nullopt;
}

bool Round::begin(int32_t member, Begin begin, Time now) {
  if (begun_.empty()) waits_since_ = now;
  if (is_left_out(member)) begin.weight = 0;  // It may not know yet.
  attempt_ = std::max(attempt_, begin.header.attempt);
  return begun_.insert_or_assign(member, std::move(begin)).second;
}

OpenAttempt Round::open(int64_t number, std::vector<int32_t> members) {
  attempt_ += 1;
  members_ = std::move(members);
  is_whole_ = true;
  lacks_links_ = false;
  prepared_.clear();
  const Begin& first = begun_.at(members_.front());
  OpenAttempt attempt{.header = {.round = number, .attempt = attempt_},
                      .fragment = first.fragment,
                      .count = first.count,
                      .segment_values = first.segment_values,
                      .members = members_};
  std::vector<int64_t> rates;
  for (const int32_t member : members_) {
    attempt.weights.push_back(begun_.at(member).weight);
    rates.push_back(begun_.at(member).rate);
  }
  attempt.shares = shares_by_rate(num_segments(first.count, first.segment_values), rates);
  return attempt;
}

std::string Round::objection_to(int32_t member, const Prepared& prepared) const {
  if (const std::string fault = fault_of(prepared); !fault.empty()) return fault;
  const int64_t round = prepared.header.round;
  if (is_whole_ && prepared.measures.squares.size() != members_.size()) {
    return fmt::format("prepared round {} with other members than it has", round);
  }
  if (prepared_.contains(member)) return fmt::format("prepared round {} twice", round);
  return {};
}

void Round::prepare(int32_t member, const Prepared& prepared) {
  prepared_.emplace(member, prepared);
}

void Round::break_link(const Pairs::value_type& pair) {
  if (takes_part(pair.first) && takes_part(pair.second)) is_whole_ = false;
}

bool Round::may_wait_for_links(Time now) {
  if (!waits_for_links_since_) waits_for_links_since_ = now;
  return now - *waits_for_links_since_ < kLongestWaitForLinks;
}

void Round::break_off() {
  is_whole_ = false;
  lacks_links_ = true;
}

void Round::leave_out(int32_t member) {
  begun_.at(member).weight = 0;
  left_out_.insert(member);
  members_.clear();  // Another attempt is due.
  prepared_.clear();
}

void Round::let_go(int32_t member) {
  if (takes_part(member) && !prepared_.contains(member)) is_whole_ = false;
}

void Round::forget(int32_t member) {
  begun_.erase(member);
  lacks_links_ = false;
  if (std::erase(members_, member) == 0) return;
  prepared_.clear();
  is_whole_ = false;
}

bool Round::is_complete(const std::set<int32_t>& live) const {
  const auto is_here = [&](int32_t member) { return live.contains(member); };
  const auto has_prepared = [&](int32_t member) {
    return !is_here(member) || prepared_.contains(member);
  };
  return is_whole_ && !prepared_.empty() && std::ranges::any_of(members_, is_here) &&
         std::ranges::all_of(members_, has_prepared);
}

bool Round::goes_on(const std::set<int32_t>& live, const std::vector<int32_t>& possible) const {
  return is_whole_ && !members_.empty() && std::ranges::all_of(members_, [&](int32_t member) {
           return live.contains(member) && has(possible, member);
         });
}

std::vector<Outliers::Contributed> Round::contributed() const {
  std::vector<Outliers::Contributed> all;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const int32_t member = members_[rank];
    const int64_t weight = begun_.at(member).weight;
    if (weight == 0) continue;
    double sum = 0;
    for (const auto& [other, said] : prepared_) sum += said.measures.squares[rank];
    all.push_back({member, std::sqrt(sum), weight});
  }
  return all;
}

Outliers::Compared Round::compared() const {
  if (num_products(members_.size()) == 0) return {};
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (begun_.at(members_[rank]).weight > 0) ranks.push_back(rank);
  }
  const auto product = [&](size_t a, size_t b) {
    const auto [j, i] = std::minmax(ranks[a], ranks[b]);
    double sum = 0;
    for (const auto& [other, said] : prepared_) sum += said.measures.products[i * (i + 1) / 2 + j];
    return sum;
  };
  std::vector<double> lengths;
  for (size_t a = 0; a < ranks.size(); ++a)
    lengths.push_back(std::sqrt(std::max(0.0, product(a, a))));
  Outliers::Compared compared{.num_values = begun_.at(members_.front()).count};
  for (size_t a = 0; a < ranks.size(); ++a) {
    for (size_t b = 0; b < ranks.size(); ++b) {
      const double both = lengths[a] * lengths[b];
      compared.cosines.push_back(both > 0 ? std::clamp(product(a, b) / both, -1.0, 1.0) : 0.0);
    }
  }
  return compared;
}

Committed Round::result() const {
  const auto& [member, said] = *prepared_.begin();
  const Begin& first = begun_.at(member);
  Committed committed{.attempt = attempt_,
                      .held = {first.fragment, said.header.round, first.step, said.digest},
                      .count = first.count,
                      .segment_values = first.segment_values,
                      .members = members_};
  for (const int32_t each : members_) {
    committed.weights.push_back(begun_.at(each).weight);
    committed.num_trained.push_back(begun_.at(each).num_trained);
  }
  if (first.fragment == kNoFragment || prepared_.size() < members_.size()) return committed;
  committed.norms.resize(members_.size());
  for (const Outliers::Contributed& one : contributed()) {
    const auto rank = std::ranges::find(members_, one.number) - members_.begin();
    committed.norms[static_cast<size_t>(rank)] = one.norm;
  }
  return committed;
}

Begin as_in(const Committed& committed, int32_t member, Begin begin) {
  const auto found = std::ranges::find(committed.members, member);
  if (found != committed.members.end()) {
    begin.weight = committed.weights[static_cast<size_t>(found - committed.members.begin())];
  }
  return begin;
}

std::vector<int64_t> OpenRounds::numbers() const {
  std::vector<int64_t> numbers;
  for (const auto& [number, round] : rounds_) numbers.push_back(number);
  return numbers;
}

Round* OpenRounds::find(int64_t number) {
  const auto found = rounds_.find(number);
  return found == rounds_.end() ? nullptr : &found->second;
}

Round& OpenRounds::begin(int64_t number) {
  highest_ = std::max(highest_, number);
  return rounds_[number];
}

bool OpenRounds::any_lacks_links() const {
  return std::ranges::any_of(rounds_, [](const auto& entry) { return entry.second.lacks_links(); });
}

const Committed* OpenRounds::lost(int64_t round) const {
  const auto found = std::ranges::find_if(
      lost_, [&](const Committed& committed) { return committed.held.round == round; });
  return found == lost_.end() ? nullptr : &*found;
}

void OpenRounds::settle(int64_t number, int32_t fragment) {
  if (!lost_.empty() && lost_.front().held.round == number) lost_.erase(lost_.begin());
  std::erase_if(rounds_, [&](const auto& entry) {
    const auto& begun = entry.second.begun();
    return entry.first == number || begun.empty() ||
           (entry.first < number && begun.begin()->second.fragment == fragment);
  });
}

void OpenRounds::let_go(int32_t member) {
  for (auto& [number, round] : rounds_) round.let_go(member);
}

void OpenRounds::forget(int32_t member) {
  for (auto& [number, round] : rounds_) round.forget(member);
}

}  // namespace atl::swarm
