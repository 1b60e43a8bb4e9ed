#include "atoll/swarm/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

namespace atl::swarm {
namespace {

// Far beyond any use, and small enough that no sum of them overflows.
constexpr int64_t kMaxWeight = int64_t{1} << 48;
constexpr int64_t kMaxCount = int64_t{1} << 44;
constexpr double kMaxSumOfSquares = 1e100;  // Of kMaxCount floats it is 2e90 at most.
constexpr int64_t kMaxRate = int64_t{1} << 44;
constexpr size_t kMaxExchangeName = 400;
constexpr size_t kMaxMembers = 1024;

bool are_members(const std::vector<int32_t>& numbers) {
  return !numbers.empty() && numbers.front() >= 0 && numbers.size() <= kMaxMembers &&
         std::ranges::adjacent_find(numbers, std::greater_equal<>()) == numbers.end();
}

/// How many others each member cannot reach; only those that lack one.
std::map<int32_t, int64_t> missing_links(const std::vector<int32_t>& members,
                                         const Pairs& no_links) {
  std::map<int32_t, int64_t> out;
  for (const auto& [a, b] : no_links) {
    if (!has(members, a) || !has(members, b)) continue;
    out[a] += 1;
    out[b] += 1;
  }
  return out;
}

}  // namespace

std::vector<int64_t> equal_shares(int64_t num_segments, int64_t num_members) {
  std::vector<int64_t> shares;
  for (int64_t i = 0; i < num_members; ++i) {
    shares.push_back(num_segments * (i + 1) / num_members - num_segments * i / num_members);
  }
  return shares;
}

std::vector<int64_t> shares_by_rate(int64_t num_segments, const std::vector<int64_t>& rates) {
  const auto num_members = static_cast<double>(rates.size());
  const bool any_unknown = std::ranges::any_of(rates, [](int64_t rate) { return rate <= 0; });
  if (rates.size() <= 2 || any_unknown) return equal_shares(num_segments, std::ssize(rates));
  // s_i = (T rate_i - 1) / (n - 2), where that is positive; the shares of those add up to 1.
  std::vector<int64_t> sorted = rates;
  std::ranges::sort(sorted, std::greater<>());
  double sum = 0;
  double time = 0;  // T, of a fragment of 1.
  for (size_t owners = 0; owners < sorted.size(); ++owners) {
    const auto rate = static_cast<double>(sorted[owners]);
    if (owners > 0 && time * rate <= 1) break;  // Its line is full without a share.
    sum += rate;
    time = (num_members - 1 + static_cast<double>(owners)) / sum;
  }
  std::vector<int64_t> shares;
  double wanted = 0;  // Of all members so far: rounding does not add up.
  int64_t given = 0;
  for (const int64_t rate : rates) {
    const double share = (time * static_cast<double>(rate) - 1) / (num_members - 2);
    wanted += std::max(share, 0.0) * static_cast<double>(num_segments);
    const auto whole = static_cast<int64_t>(wanted + 1e-6);  // As equal_shares() rounds.
    const int64_t until = std::clamp(whole, given, num_segments);
    shares.push_back(until - given);
    given = until;
  }
  shares.back() += num_segments - given;
  return shares;
}

bool has(const std::vector<int32_t>& members, int32_t number) {
  return std::ranges::binary_search(members, number);
}

bool reach_each_other(const std::vector<int32_t>& members, const Pairs& no_links) {
  return std::ranges::none_of(no_links, [&](const auto& pair) {
    return has(members, pair.first) && has(members, pair.second);
  });
}

std::vector<int32_t> plan_members(std::vector<int32_t> members,
                                  const std::map<int32_t, Begin>& begun, const Pairs& no_links) {
  std::vector<int32_t> left_out;
  while (true) {
    const auto missing = missing_links(members, no_links);
    if (missing.empty()) break;
    // Most links first, then least weight, then the last to come.
    const auto worst = std::ranges::max_element(missing, {}, [&](const auto& entry) {
      return std::tuple(entry.second, -begun.at(entry.first).weight, entry.first);
    });
    left_out.push_back(worst->first);
    std::erase(members, worst->first);
  }
  // Those whom one of them could not reach may be left out themselves by now.
  std::ranges::sort(left_out, {},
                    [&](int32_t number) { return std::pair(-begun.at(number).weight, number); });
  for (const int32_t number : left_out) {
    const auto place = members.insert(std::ranges::lower_bound(members, number), number);
    if (!reach_each_other(members, no_links)) members.erase(place);
  }
  return members;
}

int64_t num_segments(int64_t count, int64_t segment_values) {
  return (count + segment_values - 1) / segment_values;
}

std::optional<Checkpoint> newest_common_checkpoint(const std::vector<Checkpoints>& held) {
  return most_held_checkpoint(held, 0, INT64_MAX, std::ssize(held));
}

std::optional<Checkpoint> newest_checkpoint(const std::vector<Checkpoints>& held,
                                            int64_t committed_step, int64_t last_step) {
  if (const auto found = most_held_checkpoint(held, committed_step, last_step, 1)) return found;
  std::set<int64_t, std::greater<>> steps;
  for (const Checkpoints& own : held) {
    for (const auto& [step, digest] : own) steps.insert(step);
  }
  for (const int64_t step : steps) {
    if (step > last_step) continue;
    if (const auto found = most_held_checkpoint(held, step, step, 1)) return found;
  }
  return std::nullopt;
}

std::optional<Checkpoint> most_held_checkpoint(const std::vector<Checkpoints>& held,
                                               int64_t first_step, int64_t last_step,
                                               int64_t least_holders) {
  std::map<int64_t, std::map<std::string, int64_t>> holders;  // By step and digest.
  for (const Checkpoints& own : held) {
    for (const auto& [step, digest] : own) holders[step][digest] += 1;
  }
  std::optional<Checkpoint> best;
  int64_t most = std::max<int64_t>(least_holders, 1);
  for (const auto& [step, by_digest] : holders) {
    if (step < first_step || step > last_step) continue;
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto& [digest, num_holders] = *std::ranges::max_element(by_digest, fewer);
    const auto num_equal = std::ranges::count_if(
        by_digest, [&](const auto& other) { return other.second == num_holders; });
    if (num_equal > 1 || num_holders < most) continue;
    most = num_holders;
    best = {step, digest};
  }
  return best;
}

std::string fault_of(const Begin& begin) {
  if (begin.header.round < 0) return fmt::format("began round {}", begin.header.round);
  if (begin.weight < 0 || begin.weight > kMaxWeight) {
    return fmt::format("began round {} with weight {}", begin.header.round, begin.weight);
  }
  if (begin.count < 0 || begin.count > kMaxCount || begin.fragment < 0) {
    return fmt::format("began round {} with {} values of fragment {}", begin.header.round,
                       begin.count, begin.fragment);
  }
  if (begin.segment_values < 1 || begin.segment_values > kMaxCount) {
    return fmt::format("began round {} in segments of {} values", begin.header.round,
                       begin.segment_values);
  }
  if (begin.rate < 0 || begin.rate > kMaxRate) {
    return fmt::format("began round {} with a line of {} bytes per second", begin.header.round,
                       begin.rate);
  }
  if (begin.exchange.size() > kMaxExchangeName) {
    return fmt::format("began round {} with {} bytes of how to exchange it", begin.header.round,
                       begin.exchange.size());
  }
  return {};
}

std::string difference_of(const Begin& a, const Begin& b) {
  if (a.fragment != b.fragment) {
    return fmt::format("fragment {} against {}", a.fragment, b.fragment);
  }
  if (a.step != b.step) return fmt::format("a snapshot of step {} against {}", a.step, b.step);
  if (a.count != b.count) return fmt::format("{} values against {}", a.count, b.count);
  if (a.exchange != b.exchange) {
    return fmt::format("an exchange by {} against {}", printable(a.exchange),
                       printable(b.exchange));
  }
  if (a.segment_values != b.segment_values) {
    return fmt::format("segments of {} values against {}", a.segment_values, b.segment_values);
  }
  return {};
}

std::optional<int32_t> rank_in(const OpenAttempt& attempt, int32_t number) {
  const auto found = std::ranges::find(attempt.members, number);
  if (found == attempt.members.end()) return std::nullopt;
  return static_cast<int32_t>(found - attempt.members.begin());
}

std::string fault_of(const OpenAttempt& attempt, const Begin& begin, int32_t number) {
  if (attempt.count != begin.count || attempt.fragment != begin.fragment ||
      attempt.segment_values != begin.segment_values) {
    return "the attempt is about other values than were begun";
  }
  const size_t size = attempt.members.size();
  if (attempt.weights.size() != size || attempt.shares.size() != size) {
    return "the attempt has not one weight and one share for each member";
  }
  if (!are_members(attempt.members)) return "the attempt has other members than the run";
  const auto rank = rank_in(attempt, number);
  if (!rank) return "the attempt is without this member";
  const int64_t own = attempt.weights[static_cast<size_t>(*rank)];
  if (own != begin.weight && own != 0) return "the attempt has another weight than was begun";
  int64_t rest = num_segments(attempt.count, attempt.segment_values);
  for (size_t i = 0; i < size; ++i) {
    if (attempt.weights[i] < 0 || attempt.weights[i] > kMaxWeight) return "a weight is impossible";
    if (attempt.shares[i] < 0 || attempt.shares[i] > rest) return "a share is impossible";
    rest -= attempt.shares[i];
  }
  if (rest != 0) return "the shares do not cover the segments";
  return {};
}

std::string fault_of(const Prepared& prepared) {
  const auto& [squares, products] = prepared.measures;
  if (squares.size() > kMaxMembers) return "prepared a round of too many members";
  const int64_t round = prepared.header.round;
  const auto possible = [](double sum) { return sum >= 0 && sum <= kMaxSumOfSquares; };
  if (!std::ranges::all_of(squares, possible)) {
    return fmt::format("prepared round {} with a sum of squares that is none", round);
  }
  if (products.size() != num_products(squares.size())) {
    return fmt::format("prepared round {} with {} products of {} members", round, products.size(),
                       squares.size());
  }
  const auto meant = [](double sum) { return std::abs(sum) <= kMaxSumOfSquares; };
  if (std::ranges::all_of(products, meant)) return {};
  return fmt::format("prepared round {} with a product that is none", round);
}

std::string fault_of(const Commit& commit) {
  if (!are_members(commit.members)) return "the commit's members are no members";
  if (commit.weights.size() != commit.members.size()) return "a commit without its weights";
  const auto possible = [](int64_t weight) { return weight >= 0 && weight <= kMaxWeight; };
  if (!std::ranges::all_of(commit.weights, possible)) return "a weight is impossible";
  if (commit.held.round < 0 || commit.held.round != commit.header.round ||
      commit.held.fragment < 0 || commit.held.step < 0 || commit.count < 0 ||
      commit.count > kMaxCount || commit.segment_values < 1) {
    return "a commit of impossible numbers";
  }
  return {};
}

}  // namespace atl::swarm
