#include "atoll/laws/island_walk.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/random.h"

namespace atl::laws {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

bool repeats(const WalkState& before, const WalkState& now, double span_s) {
  // A line that is slower than computing by less than this share is taken to keep up.
  constexpr double kTolerance = 1e-10;
  if (span_s <= 0 || before.num_changes != now.num_changes || now.needed_in != before.needed_in) {
    return false;
  }
  return std::ranges::equal(before.ahead_s, now.ahead_s, [span_s](double a, double b) {
    return std::abs(a - b) <= kTolerance * span_s;
  });
}

IslandWalk::IslandWalk(const Workload& work, double gbps)
    : work_(work),
      part_bits_(work.bits * work.params / work.layers),
      bits_per_s_(gbps * 1e9),
      clock_s_(work.islands.size()),
      lines_(work.islands.size()),
      next_failure_s_(work.islands.size()),
      back_s_(work.islands.size()),
      num_drawn_(work.islands.size()),
      pending_(static_cast<size_t>(work.layers)),
      ready_s_(static_cast<size_t>(work.layers)) {
  for (size_t i = 0; i < work.islands.size(); ++i) {
    unit_s_.push_back(work.unit_s() / work.islands[i].speed);
    next_failure_s_[i] = draw_failure(i, 0);
  }
}

double IslandWalk::latest() const { return *std::ranges::max_element(clock_s_); }

double IslandWalk::now_s() const { return skipped_s_ + latest(); }

double IslandWalk::earliest_present() const {
  double earliest_s = kInfinity;
  for (size_t i = 0; i < clock_s_.size(); ++i) {
    if (is_present(i)) earliest_s = std::min(earliest_s, clock_s_[i]);
  }
  return earliest_s;
}

double IslandWalk::draw_failure(size_t island, double after_s) {
  if (work_.failures.mean_hours == 0) return kInfinity;
  const double uniform = random_uniform(work_.failures.seed, island, num_drawn_[island]++);
  return after_s - std::log1p(-uniform) * work_.failures.mean_hours * 3600;
}

/// Takes part in the step? One that was away comes in at the time of the others.
bool IslandWalk::take_in(size_t island, double start_s) {
  if (is_present(island)) return true;
  if (back_s_[island] > start_s) return false;
  back_s_[island] = 0;
  clock_s_[island] = start_s;
  lines_[island] = {.bulk_free = start_s};
  next_failure_s_[island] = draw_failure(island, start_s);
  ++num_returned_;
  return true;
}

/// The time at which the step begins; waits for somebody where nobody is there.
double IslandWalk::begin_step() const {
  double start_s = 0;
  double first_back_s = kInfinity;
  bool anybody = false;
  for (size_t i = 0; i < clock_s_.size(); ++i) {
    start_s = std::max(start_s, clock_s_[i]);
    anybody |= is_present(i);
    if (!is_present(i)) first_back_s = std::min(first_back_s, back_s_[i]);
  }
  return anybody ? start_s : std::max(start_s, first_back_s);
}

int IslandWalk::run_step() {
  ++step_;
  const double start_s = begin_step();
  const bool reduces = syncs();
  if (reduces) std::ranges::fill(ready_s_, 0.0);
  members_.clear();
  for (size_t i = 0; i < clock_s_.size(); ++i) {
    if (take_in(i, start_s)) finish_or_fail(i, reduces);
  }
  if (num_pending_ > 0) {
    for (auto& reductions : pending_) {
      num_pending_ -=
          std::erase_if(reductions, [this](const Pending& p) { return p.needed_at <= step_; });
    }
  }
  if (reduces && !members_.empty()) reduce();
  return static_cast<int>(members_.size());
}

void IslandWalk::finish_or_fail(size_t island, bool reduces) {
  const double forward_end_s = forward(island);
  clock_s_[island] = forward_end_s + backward_s(island, 0);
  if (clock_s_[island] >= next_failure_s_[island]) {
    // Gone, its step with it; the others notice after a while.
    back_s_[island] = next_failure_s_[island] + work_.failures.recovery_s;
    clock_s_[island] = next_failure_s_[island];
    lost_until_s_ = next_failure_s_[island] + work_.failures.detection_s;
    ++num_failed_;
    return;
  }
  members_.push_back(island);
  if (!reduces) return;
  for (int layer = 0; layer < work_.layers; ++layer) {
    double& ready_s = ready_s_[static_cast<size_t>(layer)];
    ready_s = std::max(ready_s, forward_end_s + backward_s(island, layer));
  }
}

/// Is a layer reduced after this step's backward pass?
bool IslandWalk::syncs() const {
  if (work_.method == SimulatedMethod::kDataParallel) return true;
  const int place = step_ % work_.sync_every;
  if (work_.method == SimulatedMethod::kDiloco) return place == 0;
  // The first of the slots is the embeddings', which the model leaves out.
  const int spacing = work_.sync_every / (work_.fragments + 1);
  const int slot = place / spacing;
  return place % spacing == 0 && slot >= 1 && slot <= work_.fragments;
}

/// Is it this one, where the step reduces?
bool IslandWalk::syncs(int layer) const {
  if (work_.method != SimulatedMethod::kStreamingDiloco) return true;
  const int spacing = work_.sync_every / (work_.fragments + 1);
  return layer % work_.fragments == step_ % work_.sync_every / spacing - 1;
}

/// The time at which the island's forward pass of the step ends.
double IslandWalk::forward(size_t island) const {
  double now_s = clock_s_[island];
  const double unit_s = unit_s_[island];
  if (num_pending_ == 0) {  // Added as below: results do not depend on it.
    for (int layer = 0; layer < work_.layers; ++layer) now_s += unit_s;
    return now_s;
  }
  for (const std::vector<Pending>& reductions : pending_) {
    for (const Pending& reduction : reductions) {
      if (reduction.needed_at <= step_) now_s = std::max(now_s, reduction.done_s);
    }
    now_s += unit_s;
  }
  return now_s;
}

/// From the end of the forward pass until that layer's parameters have their gradients. A step has
/// one unit less than three for each layer: the first has no backward pass for its activations.
double IslandWalk::backward_s(size_t island, int layer) const {
  const int num_units = 2 * (work_.layers - layer) - (layer == 0 ? 1 : 0);
  return num_units * unit_s_[island];
}

void IslandWalk::reduce() {
  for (int layer = work_.layers - 1; layer >= 0; --layer) {
    if (!syncs(layer)) continue;
    const double ready_s = std::max(ready_s_[static_cast<size_t>(layer)], lost_until_s_);
    double done_s = 0;
    double latency_s = 0;
    for (const size_t i : members_) {
      const SimulatedIsland& island = work_.islands[i];
      const double rate = bits_per_s_ * std::min(island.up, island.down);
      done_s = std::max(done_s, lines_[i].send_bulk(ready_s, part_bits_ / rate));
      latency_s = std::max(latency_s, island.latency_s);
    }
    pending_[static_cast<size_t>(layer)].push_back({done_s + latency_s, step_ + 1 + work_.delay});
    ++num_pending_;
  }
}

WalkState IslandWalk::state() const {
  WalkState out{.clock_s = earliest_present(), .num_changes = num_failed_ + num_returned_};
  // Nothing begins before the earliest clock: how far behind it a time lies does not matter.
  const auto add = [&out](double time_s) {
    out.ahead_s.push_back(std::max(0.0, time_s - out.clock_s));
  };
  for (size_t i = 0; i < clock_s_.size(); ++i) {
    if (!is_present(i)) continue;
    add(clock_s_[i]);
    add(lines_[i].bulk_free);
  }
  add(lost_until_s_);
  for (const std::vector<Pending>& reductions : pending_) {
    for (const Pending& reduction : reductions) {
      add(reduction.done_s);
      out.needed_in.push_back(reduction.needed_at - step_);
    }
  }
  return out;
}

double IslandWalk::spans_until_change(double span_s) const {
  const double latest_s = latest();
  double left_s = kInfinity;
  for (size_t i = 0; i < clock_s_.size(); ++i) {
    left_s =
        std::min(left_s, is_present(i) ? next_failure_s_[i] - clock_s_[i] : back_s_[i] - latest_s);
  }
  return std::max(0.0, std::floor(left_s / span_s));
}

void IslandWalk::skip(double seconds) {
  // Times begin anew at the earliest clock: small ones have more digits.
  const double walked_s = earliest_present();
  for (size_t i = 0; i < clock_s_.size(); ++i) {
    if (is_present(i)) {
      clock_s_[i] -= walked_s;
      next_failure_s_[i] -= walked_s + seconds;
    } else {
      clock_s_[i] -= walked_s + seconds;
      back_s_[i] -= walked_s + seconds;
    }
    lines_[i].bulk_free -= walked_s;
  }
  for (std::vector<Pending>& reductions : pending_) {
    for (Pending& reduction : reductions) reduction.done_s -= walked_s;
  }
  lost_until_s_ -= walked_s + seconds;
  skipped_s_ += walked_s + seconds;
}

}  // namespace atl::laws
