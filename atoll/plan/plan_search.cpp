#include "atoll/plan/plan_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace atl::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Of the same number, reckoned in two ways.
constexpr double kRounding = 1 + 1e-12;
/// By so much part of a batch that is left out may raise a loss.
constexpr double kBatchLoss = 1.001;

/// Of alternatives: beside the recommended one's.
constexpr double kOtherLosses[] = {0.9, 0.95, 1, 1.03, 1.1, 1.2, 1.35};
constexpr double kOtherBytes[] = {kInfinity, 0.1, 0};

bool is_sooner(const PlanChoice& a, const PlanChoice& b) {
  return std::tuple(a.wall_clock_s, a.total_bytes(), a.loss) <
         std::tuple(b.wall_clock_s, b.total_bytes(), b.loss);
}

}  // namespace

PlanSearch::PlanSearch(Candidates& candidates) : candidates_(candidates) {
  const std::vector<PlannedSize>& sizes = candidates.sizes();
  for (const PlanWay& way : candidates.ways()) {
    add_branch(way, candidates.ladder(), nullptr);
    // Where some island has no memory for the next one, or there is none.
    std::vector<size_t> able;
    for (const PlannedSize& size : sizes) able.push_back(candidates.num_able(size, way));
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool is_largest = i + 1 == sizes.size();
      if (!is_largest && able[i + 1] >= able[i]) continue;
      add_branch(way, candidates.longer(i), is_largest ? nullptr : &sizes[i + 1]);
    }
  }
}

void PlanSearch::add_branch(const PlanWay& way, const std::vector<PlannedSize>& sizes,
                            const PlannedSize* larger) {
  Branch branch{.way = &way, .sizes = &sizes, .larger = larger, .loss = {}, .computing_s = {}};
  bool any = false;
  for (const PlannedSize& size : sizes) {
    branch.computing_s.push_back(candidates_.least_computing_s(size, way));
    const bool fits = std::isfinite(branch.computing_s.back());
    branch.loss.push_back(fits ? candidates_.loss(size, way) : kInfinity);
    any |= fits;
  }
  if (any) branches_.push_back(std::move(branch));
}

bool PlanSearch::has_any() const { return !branches_.empty(); }

bool PlanSearch::fits(const std::vector<size_t>& islands, const PlannedSize& size,
                      const PlanWay& way) const {
  return std::ranges::all_of(islands, [&](size_t i) { return candidates_.is_able(i, size, way); });
}

/// Of each group that may be the best one.
std::vector<PlanChoice> PlanSearch::choices(const Branch& branch, size_t size,
                                            const PlanBounds& bounds) const {
  std::vector<PlanChoice> out;
  const PlannedSize& planned = (*branch.sizes)[size];
  for (auto& islands : candidates_.groups(planned, *branch.way, bounds.time_s)) {
    if (branch.larger != nullptr && fits(islands, *branch.larger, *branch.way)) continue;
    auto choice = candidates_.choice(planned, *branch.way, std::move(islands));
    if (!choice || !choice->fits() || choice->loss > kRounding * bounds.loss) continue;
    if (choice->total_bytes() > bounds.bytes) continue;
    out.push_back(std::move(*choice));
  }
  return out;
}

std::optional<PlanChoice> PlanSearch::fastest(const Branch& branch, size_t size,
                                              const PlanBounds& bounds) const {
  std::vector<PlanChoice> tried = choices(branch, size, bounds);
  std::ranges::sort(tried, {}, &PlanChoice::least_s);
  std::optional<PlanChoice> best;
  double within_s = bounds.time_s;
  for (PlanChoice& choice : tried) {
    if (choice.least_s > within_s) break;
    candidates_.time(choice);
    if (choice.wall_clock_s > within_s || (best && !is_sooner(choice, *best))) continue;
    within_s = choice.wall_clock_s;
    best = std::move(choice);
  }
  return best;
}

std::optional<PlanChoice> PlanSearch::lowest_loss(const PlanBounds& bounds) const {
  std::vector<Prospect> prospects;
  for (const Branch& branch : branches_) {
    size_t last = branch.loss.size();
    while (last > 0 && !(branch.computing_s[last - 1] <= bounds.time_s)) --last;
    if (last > 0) prospects.push_back({&branch, last - 1, branch.loss[last - 1]});
  }
  std::ranges::sort(prospects, {}, &Prospect::order);
  std::optional<PlanChoice> best;
  for (const Prospect& prospect : prospects) {
    const Branch& branch = *prospect.branch;
    if (best && prospect.hope >= best->loss) break;
    const auto try_size = [&](size_t size) {
      auto found = fastest(branch, size, bounds);
      const bool is_found = found.has_value();
      if (is_found && (!best || found->loss < best->loss)) best = std::move(found);
      return is_found;
    };
    size_t good = 0;
    while (branch.loss[good] >= (best ? best->loss : kInfinity)) ++good;
    if (!try_size(good)) continue;
    size_t bad = prospect.size + 1;
    for (size_t next = prospect.size; bad - good > 1; next = (good + bad) / 2) {
      (try_size(next) ? good : bad) = next;
    }
  }
  return best;
}

/// Those that reach the loss, soonest first by what they compute.
std::vector<PlanSearch::Prospect> PlanSearch::smallest(const PlanBounds& bounds) const {
  std::vector<Prospect> prospects;
  for (const Branch& branch : branches_) {
    if (bounds.bytes == 0 && branch.way->num_islands > 1) continue;
    for (size_t size = 0; size < branch.loss.size(); ++size) {
      const double computing_s = branch.computing_s[size];
      if (!std::isfinite(computing_s) || branch.loss[size] > kRounding * bounds.loss) continue;
      if (computing_s > bounds.time_s) break;
      prospects.push_back({&branch, size, computing_s});
      // With part of a batch left out it may just not reach it: then the next one does.
      if (kBatchLoss * branch.loss[size] <= bounds.loss) break;
    }
  }
  std::ranges::sort(prospects, {}, &Prospect::order);
  return prospects;
}

std::optional<PlanChoice> PlanSearch::soonest(const PlanBounds& bounds) const {
  std::optional<PlanChoice> best;
  PlanBounds now = bounds;
  for (const Prospect& prospect : smallest(bounds)) {
    if (prospect.hope > now.time_s) break;
    auto found = fastest(*prospect.branch, prospect.size, now);
    if (!found || (best && !is_sooner(*found, *best))) continue;
    best = std::move(found);
    now.time_s = best->wall_clock_s;
  }
  return best;
}

std::vector<PlanChoice> PlanSearch::computing_within(const PlanBounds& bounds) const {
  std::vector<PlanChoice> out;
  for (const Prospect& prospect : smallest(bounds)) {
    for (PlanChoice& choice : choices(*prospect.branch, prospect.size, bounds)) {
      if (choice.computing_s <= bounds.time_s) out.push_back(std::move(choice));
    }
  }
  return out;
}

std::vector<PlanChoice> feasible_choices(const PlanGoal& goal, const Candidates& candidates,
                                         const PlanSearch& search) {
  const PlanBounds limits{.time_s = goal.time_s.value_or(kInfinity),
                          .loss = goal.loss.value_or(kInfinity)};
  std::vector<PlanChoice> found;
  const auto add = [&](std::optional<PlanChoice> choice) {
    if (!choice) return;
    candidates.shorten_delay(*choice);
    found.push_back(std::move(*choice));
  };
  PlanBounds wanted = limits;
  if (!goal.loss) {
    const auto lowest = search.lowest_loss(limits);
    if (!lowest) return found;
    wanted.loss = (goal.time_s ? 1 : kCloseLoss) * lowest->loss;
    add(lowest);
  }
  const auto best = search.soonest(wanted);
  if (!best) return found;
  add(best);
  const bool is_lowest = goal.time_s && !goal.loss;
  for (const double loss : kOtherLosses) {
    if (is_lowest && loss < 1) continue;
    for (const double bytes : kOtherBytes) {
      add(search.soonest({.time_s = limits.time_s,
                          .loss = std::min(limits.loss, loss * best->loss),
                          .bytes = bytes < kInfinity ? bytes * best->total_bytes() : bytes}));
    }
  }
  return found;
}

}  // namespace atl::plan
