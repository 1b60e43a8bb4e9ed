#include "atoll/sweep/sweep_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "atoll/laws/power_law.h"

namespace atl::sweep {
namespace {

using Place = std::array<int64_t, kNumAxes>;  // Steps from each axis's first value.

/// What is known of a place: of its seeds together.
struct Tried {
  bool is_complete = false;
  std::optional<BestPlace> result;  // Nothing: all its seeds failed, or it is not complete.
};

constexpr size_t kPretended = 1'000'000;  // Failed seeds: more than any place has.

/// Six digits: the same on every machine, whatever its pow() says of the last ones.
double rounded(double value) { return std::stod(fmt::format("{:.6g}", value)); }

class CellSearch {
 public:
  CellSearch(const CellTask& task, const Known& known, const Obstacle& obstacle, bool pretend)
      : task_(task), known_(known), obstacle_(obstacle), pretend_(pretend), start_(start()) {}

  CellState run() {
    std::set<Place> places;
    if (task_.search == Search::kHalving) {
      state_.done = halve(places);
    } else {
      places = task_.search == Search::kGrid ? all_places() : std::set<Place>{start_};
      state_.done = walk(places, 1, {});
    }
    if (state_.done) describe(places);
    state_.done = state_.wanted.empty() && state_.done;
    return std::move(state_);
  }

 private:
  std::set<Place> all_places() const {
    std::set<Place> places = {Place{}};
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      std::set<Place> more;
      for (Place place : places) {
        for (size_t i = 0; i < std::max<size_t>(1, task_.axes[axis].size()); ++i) {
          place[axis] = static_cast<int64_t>(i);
          more.insert(place);
        }
      }
      places = std::move(more);
    }
    return places;
  }

  /// The place nearest to the task's start, of those given; the middle where it names none.
  Place start() const {
    Place place{};
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      const std::vector<double>& values = task_.axes[axis];
      if (values.empty()) continue;
      place[axis] = static_cast<int64_t>((values.size() - 1) / 2);
      if (task_.start[axis] == 0) continue;
      const auto nearest = std::ranges::min_element(
          values, {}, [&](double value) { return std::abs(std::log(value / task_.start[axis])); });
      place[axis] = nearest - values.begin();
    }
    return place;
  }

  bool is_swept(size_t axis) const { return task_.axes[axis].size() > 1; }

  std::optional<SweepPoint> point(const Place& place, double share) const {
    SweepPoint point{.cell = task_.cell, .tokens_share = share, .seed = task_.seeds.front()};
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      if (task_.axes[axis].empty()) continue;
      const auto value =
          axis_value(static_cast<Axis>(axis), task_.axes[axis], place[axis], task_.batch_unit);
      if (!value) return std::nullopt;
      point.at[axis] = *value;
    }
    return point;
  }

  /// Asks for what is missing of the place, the first time that it is looked at.
  const Tried& look(const Place& place, double share) {
    const auto [found, is_new] = tried_.try_emplace({share, place});
    Tried& tried = found->second;
    if (!is_new) return tried;
    BestPlace result{.point = *point(place, share)};
    std::vector<double> losses;
    size_t num_known = 0;
    for (SweepPoint one = result.point; const int64_t seed : task_.seeds) {
      one.seed = seed;
      state_.points.push_back(one);
      if (const auto outcome = known_(one)) {
        ++num_known;
        if (outcome->loss && losses.empty()) result.point = one;
        if (outcome->loss) losses.push_back(*outcome->loss);
        result.num_failed += outcome->loss ? 0 : 1;
      } else {
        state_.wanted.push_back(one);
      }
    }
    state_.num_failed += result.num_failed;
    tried.is_complete = num_known == task_.seeds.size() || pretend_;
    if (!tried.is_complete) return tried;
    if (num_known == 0) {
      losses.push_back(static_cast<double>(distance(place)));
      result.num_failed = kPretended;
    }
    if (losses.empty()) return tried;
    const auto count = static_cast<double>(losses.size());
    for (const double loss : losses) result.loss += loss / count;
    double squares = 0;
    for (const double loss : losses) squares += (loss - result.loss) * (loss - result.loss);
    result.deviation = losses.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
    result.num_seeds = losses.size();
    tried.result = result;
    return tried;
  }

  /// From the start, in steps.
  int64_t distance(const Place& place) const {
    int64_t sum = 0;
    for (size_t axis = 0; axis < kNumAxes; ++axis) sum += std::abs(place[axis] - start_[axis]);
    return sum;
  }

  bool all_complete(const std::set<Place>& places, double share) {
    bool complete = true;
    for (const Place& place : places) complete = look(place, share).is_complete && complete;
    return complete;
  }

  std::optional<Place> best_of(const std::set<Place>& places, double share) {
    std::optional<Place> best;
    for (const Place& place : places) {
      const auto& result = look(place, share).result;
      if (result && (!best || result->rank() < look(*best, share).result->rank())) best = place;
    }
    return best;
  }

  /// Adds the neighbours of the best place until none is missing; where all failed, others that are
  /// given. Those `elsewhere` count as there.
  /// False: points are still to be trained.
  bool walk(std::set<Place>& places, double share, const std::set<Place>& elsewhere) {
    while (all_complete(places, share)) {
      const auto best = best_of(places, share);
      if (!best) {
        const auto other = another(places, elsewhere);
        if (!other) return true;
        places.insert(*other);
        continue;
      }
      const size_t before = places.size();
      for (size_t axis = 0; axis < kNumAxes; ++axis) {
        for (const int64_t step : {-1, 1}) {
          const Place next = neighbour(*best, axis, step);
          if (!is_swept(axis) || places.contains(next) || elsewhere.contains(next)) continue;
          if (limit_of(next, axis, share).empty()) places.insert(next);
        }
      }
      if (places.size() == before) return true;
    }
    return false;
  }

  /// Of the given places the one next to the start that was not tried.
  std::optional<Place> another(const std::set<Place>& places,
                               const std::set<Place>& elsewhere) const {
    std::optional<Place> nearest;
    for (const Place& place : all_places()) {
      if (places.contains(place) || elsewhere.contains(place)) continue;
      if (!nearest || distance(place) < distance(*nearest)) nearest = place;
    }
    return nearest;
  }

  static Place neighbour(Place place, size_t axis, int64_t step) {
    place[axis] += step;
    return place;
  }

  /// Why the place cannot be tried; empty: it can.
  std::string limit_of(const Place& place, size_t axis, double share) {
    const auto last = static_cast<int64_t>(task_.axes[axis].size()) - 1;
    int64_t& low = reached_[axis].first;
    int64_t& high = reached_[axis].second;
    const int64_t new_low = std::max(low, -place[axis]);
    const int64_t new_high = std::max(high, place[axis] - last);
    if (new_low + new_high > task_.extensions) {
      if (task_.extensions == 0) return "no extensions are allowed";
      if (task_.extensions == 1) return "the one extension is used";
      return fmt::format("all {} extensions are used", task_.extensions);
    }
    const auto at = point(place, share);
    if (!at) return "there is no further value";
    if (std::string obstacle = obstacle_(*at); !obstacle.empty()) return obstacle;
    low = new_low;
    high = new_high;
    return {};
  }

  /// Successive halving. What is left of the places is put into `places`.
  bool halve(std::set<Place>& places) {
    const int64_t rungs = task_.halving_rungs;
    const auto rate = static_cast<double>(task_.halving_rate);
    const auto share_of = [&](int64_t rung) { return rung_share(rung, rungs, task_.halving_rate); };
    std::set<Place> candidates = all_places();
    if (!walk(candidates, share_of(0), {})) return false;
    places = candidates;
    for (int64_t rung = 1; rung < rungs; ++rung) {
      std::vector<std::pair<std::pair<size_t, double>, Place>> ranked;
      for (const Place& place : places) {
        const auto& result = look(place, share_of(rung - 1)).result;
        if (result) ranked.emplace_back(result->rank(), place);
      }
      std::ranges::sort(ranked);
      const auto kept = static_cast<size_t>(std::ceil(static_cast<double>(places.size()) / rate));
      places.clear();
      for (const auto& [rank, place] : ranked) {
        // Where all that were kept fail, the next one is tried.
        if (places.size() >= kept) {
          if (!all_complete(places, share_of(rung))) return false;
          if (best_of(places, share_of(rung))) break;
        }
        places.insert(place);
      }
      if (!all_complete(places, share_of(rung))) return false;
    }
    // Where none is left, all that did not fail with fewer tokens are tried with all of them.
    if (!best_of(places, 1)) {
      std::erase_if(candidates, [&](const Place& place) { return !has_failed(place); });
    }
    if (!walk(places, 1, candidates)) return false;
    lesser_ = std::move(candidates);
    return true;
  }

  void describe(const std::set<Place>& places) {
    const auto best = best_of(places, 1);
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      AxisState& state = state_.axes[axis];
      if (task_.axes[axis].empty()) continue;
      state.end = AxisEnd::kFixed;
      state.low = std::numeric_limits<double>::infinity();
      for (const auto& [key, tried] : tried_) {
        const double value = point(key.second, 1)->at[axis];
        state.low = std::min(state.low, value);
        state.high = std::max(state.high, value);
      }
      state.extensions = reached_[axis].first + reached_[axis].second;
      if (best && is_swept(axis)) describe_end(*best, places, axis);
    }
    if (best) state_.best = look(*best, 1).result;
  }

  void describe_end(const Place& best, const std::set<Place>& places, size_t axis) {
    AxisState& state = state_.axes[axis];
    state.end = AxisEnd::kInterior;
    for (const int64_t step : {-1, 1}) {
      const Place next = neighbour(best, axis, step);
      if (places.contains(next)) {
        state.beside_failed |= !look(next, 1).result;
      } else if (lesser_.contains(next)) {
        state.beside_lesser = true;
        state.beside_failed |= has_failed(next);
      } else {
        state.end = step < 0 ? AxisEnd::kLow : AxisEnd::kHigh;
        state.limit = limit_of(next, axis, 1);
      }
    }
  }

  /// With any share of the tokens.
  bool has_failed(const Place& place) const {
    return std::ranges::any_of(tried_, [&](const auto& entry) {
      return entry.first.second == place && entry.second.is_complete && !entry.second.result;
    });
  }

  const CellTask& task_;
  const Known& known_;
  const Obstacle& obstacle_;
  const bool pretend_;
  const Place start_;
  CellState state_;
  std::map<std::pair<double, Place>, Tried> tried_;                 // By share and place.
  std::array<std::pair<int64_t, int64_t>, kNumAxes> reached_ = {};  // Extensions, low and high.
  std::set<Place> lesser_;                                          // Tried with fewer tokens.
};

}  // namespace

std::string cell_name(const Cell& cell) {
  std::string name =
      fmt::format("{}, {}", cell.size, laws::replicas_name(static_cast<double>(cell.replicas)));
  if (cell.replicas > 0) name += ", " + cell.method;
  if (cell.sync_every > 0) name += fmt::format(", H {}", cell.sync_every);
  if (cell.tokens_factor != 1) name += fmt::format(", tokens x{:g}", cell.tokens_factor);
  return name;
}

std::string place_name(const SweepPoint& point) {
  std::string name = cell_name(point.cell);
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    if (point.at[axis] > 0) name += fmt::format(", {} {:g}", kAxisNames[axis], point.at[axis]);
  }
  return name;
}

double rung_share(int64_t rung, int64_t rungs, int64_t rate) {
  return std::pow(static_cast<double>(rate), static_cast<double>(rung + 1 - rungs));
}

std::optional<double> axis_value(Axis axis, const std::vector<double>& values, int64_t index,
                                 double unit) {
  const auto last = static_cast<int64_t>(values.size()) - 1;
  if (index >= 0 && index <= last) return values[static_cast<size_t>(index)];
  const double end = index < 0 ? values.front() : values.back();
  const double beside = index < 0 ? values[1] : values[static_cast<size_t>(last) - 1];
  const auto steps = static_cast<double>(index < 0 ? -index : index - last);
  double value = 0;
  if (axis == kOuterLr) {
    value = end + steps * (end - beside);
    // Zero, but for the last digits.
    if (value < 1e-6 * std::abs(end - beside)) return std::nullopt;
    value = rounded(value);
  } else {
    value = end * std::pow(end / beside, steps);
    value = axis == kBatchTokens ? unit * std::round(value / unit) : rounded(value);
  }
  if (!(value > 0) || !std::isfinite(value)) return std::nullopt;
  // A batch that rounds to the value before it is none of its own.
  if (axis == kBatchTokens) {
    const auto before = axis_value(axis, values, index < 0 ? index + 1 : index - 1, unit);
    if (!before || *before == value) return std::nullopt;
  }
  return value;
}

CellState search_cell(const CellTask& task, const Known& known, const Obstacle& obstacle,
                      bool pretend) {
  return CellSearch(task, known, obstacle, pretend).run();
}

}  // namespace atl::sweep
