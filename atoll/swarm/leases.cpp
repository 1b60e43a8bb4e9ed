#include "atoll/swarm/leases.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"

namespace atl::swarm {
namespace {

/// Cuts the first `count` units off `list`.
std::vector<Units> cut(std::vector<Units>& list, int64_t count) {
  std::vector<Units> out;
  while (count > 0 && !list.empty()) {
    Units& front = list.front();
    const int64_t taken = std::min(count, front.count);
    out.push_back({front.first, front.stride, taken});
    front = {front.at(taken), front.stride, front.count - taken};
    count -= taken;
    if (front.count == 0) list.erase(list.begin());
  }
  return out;
}

}  // namespace

int64_t num_units(std::span<const Units> list) {
  int64_t size = 0;
  for (const Units& units : list) size += units.count;
  return size;
}

std::vector<Units> LeaseBook::draw(int64_t count) {
  std::vector<Units> out = cut(returned_, count);
  const int64_t missing = count - num_units(out);
  if (missing > 0) out.push_back({next_, 1, missing});
  next_ += missing;
  return out;
}

std::vector<std::vector<Units>> LeaseBook::grant(std::span<const int32_t> members, int64_t count) {
  ATOLL_CHECK(count >= 0 && !members.empty(), "somebody gets something");
  const auto num_members = static_cast<int64_t>(members.size());
  std::vector<std::vector<Units>> out(members.size());
  int64_t num_dealt = 0;
  for (const Units& units : draw(count * num_members)) {
    for (int64_t i = 0; i < num_members; ++i) {
      // The first of these units that is this member's turn, and then every num_members-th.
      const int64_t begin = (i - num_dealt % num_members + num_members) % num_members;
      if (begin >= units.count) continue;
      out[static_cast<size_t>(i)].push_back({units.at(begin), units.stride * num_members,
                                             (units.count - begin - 1) / num_members + 1});
    }
    num_dealt += units.count;
  }
  for (size_t i = 0; i < members.size(); ++i) {
    Leases& leases = members_[members[i]];
    leases.num_granted += count;
    leases.rest.insert(leases.rest.end(), out[i].begin(), out[i].end());
  }
  return out;
}

bool LeaseBook::is_possible(int32_t member, int64_t num_trained) const {
  const auto found = members_.find(member);
  const int64_t granted = found == members_.end() ? 0 : found->second.num_granted;
  return num_trained >= 0 && num_trained <= granted;
}

std::vector<Units> LeaseBook::consume(int32_t member, int64_t num_trained) {
  ATOLL_CHECK(is_possible(member, num_trained), "units that it has");
  const int64_t count = num_open(member, num_trained);
  if (count == 0) return {};
  Leases& leases = members_.at(member);
  leases.num_consumed += count;
  num_consumed_ += count;
  return cut(leases.rest, count);
}

void LeaseBook::give_back(std::span<const Units> units) {
  returned_.insert(returned_.end(), units.begin(), units.end());
  num_consumed_ -= num_units(units);
}

std::vector<Units> LeaseBook::behind(int32_t member, int64_t num_known) const {
  const auto found = members_.find(member);
  if (found == members_.end()) return {};
  std::vector<Units> rest = found->second.rest;
  cut(rest, num_known - found->second.num_consumed);
  return rest;
}

void LeaseBook::revoke(int32_t member) {
  const auto found = members_.find(member);
  if (found == members_.end()) return;
  returned_.insert(returned_.end(), found->second.rest.begin(), found->second.rest.end());
  members_.erase(found);
}

void LeaseBook::revoke_all(int64_t first) {
  while (!members_.empty()) revoke(members_.begin()->first);
  std::vector<int64_t> free;
  for (const Units& units : returned_) {
    for (int64_t i = 0; i < units.count; ++i) free.push_back(units.at(i));
  }
  std::ranges::sort(free);
  const auto kept = std::ranges::lower_bound(free, first);
  num_consumed_ += kept - free.begin();
  free.erase(free.begin(), kept);
  // The last of them may be what nobody was given yet.
  for (; !free.empty() && free.back() == next_ - 1; free.pop_back()) --next_;
  if (next_ < first) num_consumed_ += first - std::exchange(next_, first);
  returned_.clear();
  for (const int64_t unit : free) {
    if (!returned_.empty() && returned_.back().at(returned_.back().count) == unit) {
      returned_.back().count += 1;
    } else {
      returned_.push_back({unit, 1, 1});
    }
  }
}

int64_t LeaseBook::num_open(int32_t member, int64_t num_trained) const {
  const auto found = members_.find(member);
  const int64_t consumed = found == members_.end() ? 0 : found->second.num_consumed;
  return std::max<int64_t>(0, num_trained - consumed);
}

}  // namespace atl::swarm
