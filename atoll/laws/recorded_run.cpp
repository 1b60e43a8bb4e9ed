#include "atoll/laws/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/sim/line.h"

namespace atl::laws {
namespace {

IslandTime between(const IslandTime& a, const IslandTime& b, double share) {
  return {.computing_s = std::lerp(a.computing_s, b.computing_s, share),
          .handling_s = std::lerp(a.handling_s, b.handling_s, share),
          .waiting_s = std::lerp(a.waiting_s, b.waiting_s, share),
          .pausing_s = std::lerp(a.pausing_s, b.pausing_s, share)};
}

/// What an island had spent at a step, which may lie between two marks.
IslandTime spent_at(const std::vector<Mark>& marks, int64_t step) {
  const auto after = std::ranges::lower_bound(marks, step, {}, &Mark::step);
  if (after == marks.end()) return marks.back().spent;
  if (after == marks.begin()) return after->spent;
  const Mark& before = *(after - 1);
  return between(
      before.spent, after->spent,
      static_cast<double>(step - before.step) / static_cast<double>(after->step - before.step));
}

/// Of rounds, how long they took.
class RoundTimes {
 public:
  void add(double seconds) {
    if (num_ == 0) first_ = seconds;
    sum_ += seconds;
    num_ += 1;
  }
  /// As many times more what came since `before`.
  void repeat(const RoundTimes& before, double times) {
    sum_ += times * (sum_ - before.sum_);
    num_ += times * (num_ - before.num_);
  }
  void write(RunTime& time) const {
    time.exchange_s = num_ > 0 ? sum_ / num_ : 0;
    time.first_exchange_s = first_;
  }

 private:
  double first_ = 0;
  double sum_ = 0;
  double num_ = 0;
};

/// Of several values, the largest without one's own.
class LargestOfOthers {
 public:
  void add(size_t place, double value) {
    if (value > largest_) {
      second_ = largest_;
      largest_ = value;
      place_ = place;
    } else {
      second_ = std::max(second_, value);
    }
  }
  double without(size_t place) const { return place == place_ ? second_ : largest_; }

 private:
  double largest_ = -std::numeric_limits<double>::infinity();
  double second_ = -std::numeric_limits<double>::infinity();
  size_t place_ = 0;
};

/// A result that an island will need.
struct Use {
  size_t island = 0;
  double commit_s = 0;
};

/// When a result is needed: after which step, and, of those, the one sent first.
using UseOrder = std::pair<int64_t, int64_t>;

/// All that a simulation changes.
struct State {
  std::vector<double> clock_s;  // By island, as the next four.
  std::vector<IslandTime> at;   // As the run had it.
  std::vector<sim::Line<double, double>> up;
  std::vector<sim::Line<double, double>> down;
  std::vector<IslandTime> spent;
  std::multimap<UseOrder, Use> uses;
  RoundTimes round_times;
};

/// Whether from `b` on comes what came from `a` on, `steps` steps and so many seconds later. Lines
/// make good `burst_s` at most.
bool is_repeated(const State& a, const State& b, int64_t steps, double burst_s) {
  constexpr double kRounding = 1e-12;
  const double later_s = b.clock_s[0] - a.clock_s[0];
  const double tolerance_s = kRounding * b.clock_s[0];
  const auto is_same = [&](double before_s, double now_s) {
    return std::abs(now_s - before_s - later_s) <= tolerance_s;
  };
  if (!std::ranges::equal(a.clock_s, b.clock_s, is_same)) return false;
  // A line that is free before anybody sends is just free.
  const double free_a_s = std::ranges::min(a.clock_s) - burst_s;
  const auto is_line = [&](const auto& before, const auto& now) {
    return is_same(std::max(free_a_s, before.bulk_free),
                   std::max(free_a_s + later_s, now.bulk_free));
  };
  if (!std::ranges::equal(a.up, b.up, is_line)) return false;
  if (!std::ranges::equal(a.down, b.down, is_line)) return false;
  return std::ranges::equal(a.uses, b.uses, [&](const auto& before, const auto& now) {
    return UseOrder(before.first.first + steps, before.first.second + steps) == now.first &&
           before.second.island == now.second.island &&
           is_same(before.second.commit_s, now.second.commit_s);
  });
}

class Simulation {
 public:
  Simulation(const RecordedRun& run, std::span<const SimulatedIsland> islands, double gbps)
      : run_(run),
        islands_(islands),
        bits_per_s_(gbps * 1e9),
        first_step_(run.first_step()),
        last_step_(run.last_step()),
        now_{.clock_s = std::vector<double>(islands.size()),
             .at = std::vector<IslandTime>(islands.size()),
             .up = std::vector<sim::Line<double, double>>(islands.size()),
             .down = std::vector<sim::Line<double, double>>(islands.size()),
             .spent = std::vector<IslandTime>(islands.size()),
             .uses = {},
             .round_times = {}} {
    ATOLL_CHECK(islands.size() == run.islands.size(), "a line for each island");
    begin_at(first_step_);
  }

  RunTime run() {
    const Repetition& again = run_.again;
    const auto repeated = rounds_of(again.after, again.after + again.every);
    for (const RecordedRound& round : rounds_of(first_step_, again.after)) send(round, 0);
    for (const RecordedRound& round : repeated) send(round, 0);
    if (again.times > 0) repeat(repeated);
    const int64_t next = std::max(first_step_, again.after + again.every);
    for (const RecordedRound& round : rounds_of(next, last_step_)) send(round, 0);
    train_all_until(last_step_);
    RunTime time{.islands = now_.spent};
    now_.round_times.write(time);
    return time;
  }

 private:
  /// Those sent after the steps (after, last].
  std::span<const RecordedRound> rounds_of(int64_t after, int64_t last) const {
    const std::span<const RecordedRound> all(run_.rounds);
    const auto begin = std::ranges::upper_bound(all, after, {}, &RecordedRound::sent_after);
    const auto end =
        std::ranges::upper_bound(begin, all.end(), last, {}, &RecordedRound::sent_after);
    return {begin, end};
  }

  void begin_at(int64_t step) {
    for (size_t i = 0; i < now_.at.size(); ++i) now_.at[i] = spent_at(run_.islands[i].marks, step);
  }

  /// All times are sums and the larger of two. So after a while a state comes again, only later,
  /// and with it all that followed.
  void repeat(std::span<const RecordedRound> rounds) {
    const auto [after, every, times] = run_.again;
    const double burst_s = std::ranges::max(islands_, {}, &SimulatedIsland::burst_s).burst_s;
    train_all_until(after + every);
    State before = now_;
    int64_t taken_at = 0;  // `before`, which doubling finds behind any beginning.
    bool is_known = false;
    for (int64_t k = 1; k <= times; ++k) {
      for (const RecordedRound& round : rounds) send(round, k * every);
      train_all_until(after + (k + 1) * every);
      if (is_known) continue;
      const int64_t cycle = k - taken_at;
      if (is_repeated(before, now_, cycle * every, burst_s)) {
        is_known = true;
        const int64_t cycles = (times - k) / cycle;
        k += cycles * cycle;
        skip(before, cycles, cycle * every);
        begin_at(after + (k + 1) * every);
      } else if (cycle > taken_at) {
        before = now_;
        taken_at = k;
      }
    }
  }

  /// As many times more what came since `before`, so many steps ago.
  void skip(const State& before, int64_t cycles, int64_t steps) {
    const auto times = static_cast<double>(cycles);
    const double later_s = times * (now_.clock_s[0] - before.clock_s[0]);
    for (size_t i = 0; i < now_.spent.size(); ++i) {
      now_.clock_s[i] += later_s;
      now_.up[i].bulk_free += later_s;
      now_.down[i].bulk_free += later_s;
      now_.spent[i] = between(before.spent[i], now_.spent[i], 1 + times);
    }
    std::multimap<UseOrder, Use> uses;
    for (const auto& [order, use] : now_.uses) {
      uses.emplace(UseOrder(order.first + cycles * steps, order.second + cycles * steps),
                   Use{use.island, use.commit_s + later_s});
    }
    now_.uses = std::move(uses);
    now_.round_times.repeat(before.round_times, times);
  }

  void train_until(size_t i, int64_t step) {
    const IslandTime then = spent_at(run_.islands[i].marks, step);
    const IslandTime& at = now_.at[i];
    const double computing_s = (then.computing_s - at.computing_s) / islands_[i].speed;
    const double handling_s = (then.handling_s - at.handling_s) / islands_[i].speed;
    const double pausing_s = then.pausing_s - at.pausing_s;
    IslandTime& spent = now_.spent[i];
    spent.computing_s += computing_s;
    spent.handling_s += handling_s;
    spent.pausing_s += pausing_s;
    now_.clock_s[i] += computing_s + handling_s + pausing_s;
    now_.at[i] = then;
  }

  /// All that is needed until then is waited for.
  void train_all_until(int64_t step) {
    wait_before({step + 1, 0});
    for (size_t i = 0; i < islands_.size(); ++i) train_until(i, step);
  }

  void wait_before(UseOrder order) {
    const auto end = now_.uses.lower_bound(order);
    for (auto next = now_.uses.begin(); next != end; next = now_.uses.erase(next)) {
      const auto [i, commit_s] = next->second;
      train_until(i, next->first.first);
      const double until_s = std::max(now_.clock_s[i], commit_s);
      now_.spent[i].waiting_s += until_s - now_.clock_s[i];
      now_.clock_s[i] = until_s;
    }
  }

  /// What was sent before is taken before what is due is sent; without delay, behind it.
  void send(const RecordedRound& round, int64_t later) {
    const int64_t step = round.sent_after + later;
    wait_before({step, step});
    for (const RecordedPart& part : round.parts) train_until(part.island, step);
    const double committed_s = exchange(round);
    for (const RecordedPart& part : round.parts) {
      const int64_t used = std::max(part.used_after + later, step);
      now_.uses.emplace_hint(now_.uses.end(), UseOrder(used, step),
                             Use{part.island, committed_s + islands_[part.island].latency_s});
    }
  }

  /// When the coordinator commits it.
  double exchange(const RecordedRound& round) {
    double opened_s = 0;  // At the coordinator.
    double begun_s = 0;   // Of all members.
    for (const RecordedPart& part : round.parts) {
      const double clock_s = now_.clock_s[part.island];
      opened_s = std::max(opened_s, clock_s + islands_[part.island].latency_s);
      begun_s += clock_s;
    }
    const std::vector<double> left_s = leave(round, opened_s);
    const std::vector<double> arrived_s = arrive(round, opened_s, left_s);
    double committed_s = 0;
    for (size_t p = 0; p < round.parts.size(); ++p) {
      const SimulatedIsland& island = islands_[round.parts[p].island];
      const double prepared_s = arrived_s[p] + round.parts[p].prepare_s / island.speed;
      committed_s = std::max(committed_s, prepared_s + island.latency_s);
    }
    double ended_s = 0;
    for (const RecordedPart& part : round.parts) {
      ended_s += committed_s + islands_[part.island].latency_s;
    }
    now_.round_times.add((ended_s - begun_s) / static_cast<double>(round.parts.size()));
    return committed_s;
  }

  /// When the last bit of each member has left it.
  std::vector<double> leave(const RecordedRound& round, double opened_s) {
    const size_t num_parts = round.parts.size();
    std::vector<double> left_s(num_parts);
    LargestOfOthers contributed_s;  // As it comes to the other's line.
    for (size_t p = 0; p < num_parts; ++p) {
      const RecordedPart& part = round.parts[p];
      const SimulatedIsland& island = islands_[part.island];
      const double rate = bits_per_s_ * island.up;
      const double sending_s = 8 * part.sent_bytes / rate;
      const double open_s = opened_s + island.latency_s;
      // Of a last piece that is cut off anywhere, half on average.
      const bool is_one_piece = part.sent_bytes <= island.piece_bytes;
      const double ahead_bytes = is_one_piece ? part.sent_bytes : island.piece_bytes / 2;
      const double last_s = now_.up[part.island].send_bulk(open_s - island.burst_s, sending_s);
      left_s[p] = std::max(open_s, last_s - 8 * ahead_bytes / rate);
      // Contributions first; as many bytes again are means.
      contributed_s.add(p, left_s[p] - sending_s / 2 + island.latency_s);
    }
    if (round.gathers) return left_s;
    for (size_t p = 0; p < num_parts; ++p) {
      const double here_s = contributed_s.without(p) + islands_[round.parts[p].island].latency_s;
      left_s[p] = std::max(left_s[p], here_s);
    }
    return left_s;
  }

  /// When each member has all of the others' bits.
  std::vector<double> arrive(const RecordedRound& round, double opened_s,
                             const std::vector<double>& left_s) {
    const size_t num_parts = round.parts.size();
    LargestOfOthers ahead_s;  // The first bits come from who hears first, and is near.
    LargestOfOthers last_s;
    for (size_t p = 0; p < num_parts; ++p) {
      const double latency_s = islands_[round.parts[p].island].latency_s;
      ahead_s.add(p, -2 * latency_s);
      last_s.add(p, left_s[p] + latency_s);
    }
    std::vector<double> arrived_s(num_parts);
    for (size_t p = 0; p < num_parts; ++p) {
      const RecordedPart& part = round.parts[p];
      const SimulatedIsland& island = islands_[part.island];
      const double first_s = opened_s - ahead_s.without(p) + island.latency_s;
      const double receiving_s = 8 * part.received_bytes / (bits_per_s_ * island.down);
      arrived_s[p] = std::max(last_s.without(p) + island.latency_s,
                              now_.down[part.island].send_bulk(first_s, receiving_s));
    }
    return arrived_s;
  }

  const RecordedRun& run_;
  std::span<const SimulatedIsland> islands_;
  double bits_per_s_;
  int64_t first_step_;
  int64_t last_step_;
  State now_;
};

}  // namespace

double RunTime::utilisation() const {
  IslandTime all;
  for (const IslandTime& island : islands) {
    all.computing_s += island.computing_s;
    all.handling_s += island.handling_s;
    all.waiting_s += island.waiting_s;
  }
  return all.utilisation();
}

double RunTime::wall_clock_s() const {
  double longest = 0;
  for (const IslandTime& island : islands) longest = std::max(longest, island.total_s());
  return longest;
}

int64_t RecordedRun::first_step() const {
  int64_t step = 0;
  for (const RecordedIsland& island : islands) step = std::max(step, island.marks.front().step);
  return step;
}

int64_t RecordedRun::last_step() const {
  int64_t step = islands.front().marks.back().step;
  for (const RecordedIsland& island : islands) step = std::min(step, island.marks.back().step);
  return step;
}

RunTime measured(const RecordedRun& run) {
  RunTime time;
  for (const RecordedIsland& island : run.islands) {
    const IslandTime begin = spent_at(island.marks, run.first_step());
    const IslandTime end = spent_at(island.marks, run.last_step());
    time.islands.push_back({.computing_s = end.computing_s - begin.computing_s,
                            .handling_s = end.handling_s - begin.handling_s,
                            .waiting_s = end.waiting_s - begin.waiting_s,
                            .pausing_s = end.pausing_s - begin.pausing_s});
  }
  RoundTimes round_times;
  for (const RecordedRound& round : run.rounds) {
    if (round.sent_after <= run.first_step() || round.sent_after > run.last_step()) continue;
    double sum_s = 0;
    for (const RecordedPart& part : round.parts) sum_s += part.exchange_s;
    round_times.add(sum_s / static_cast<double>(round.parts.size()));
  }
  round_times.write(time);
  return time;
}

RunTime simulate(const RecordedRun& run, std::span<const SimulatedIsland> islands, double gbps) {
  return Simulation(run, islands, gbps).run();
}

std::optional<double> gbps_for(const RecordedRun& run, std::span<const SimulatedIsland> islands,
                               double target) {
  constexpr double kLeast = -9;   // log10 of Gbit/s: one bit per second.
  constexpr double kMost = 6;     // log10 of Gbit/s: beyond any line.
  constexpr double kStep = 4e-4;  // A thousandth.
  const auto reaches = [&](double exponent) {
    return simulate(run, islands, std::pow(10, exponent)).utilisation() >= target;
  };
  if (!reaches(kMost)) return std::nullopt;
  double low = kLeast;
  double high = kMost;
  while (high - low > kStep) {
    const double middle = (low + high) / 2;
    (reaches(middle) ? high : low) = middle;
  }
  return std::pow(10, high);
}

}  // namespace atl::laws
