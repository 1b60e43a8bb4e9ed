#include "atoll/scaling/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/check.h"
#include "atoll/sim/line.h"

namespace atl::scaling {
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
  void write(RunTime& time) const {
    time.exchange_s = num_ > 0 ? sum_ / num_ : 0;
    time.first_exchange_s = first_;
  }

 private:
  double first_ = 0;
  double sum_ = 0;
  double num_ = 0;
};

class Simulation {
 public:
  Simulation(const RecordedRun& run, std::span<const SimulatedIsland> islands, double gbps)
      : run_(run),
        islands_(islands),
        bits_per_s_(gbps * 1e9),
        first_step_(run.first_step()),
        last_step_(run.last_step()),
        clock_s_(islands.size()),
        at_(islands.size()),
        up_(islands.size()),
        down_(islands.size()),
        time_{.islands = std::vector<IslandTime>(islands.size())} {
    ATOLL_CHECK(islands.size() == run.islands.size(), "a line for each island");
    for (size_t i = 0; i < at_.size(); ++i) at_[i] = spent_at(run.islands[i].marks, first_step_);
  }

  RunTime run() {
    std::map<int64_t, std::vector<size_t>> sent_after;  // Step -> rounds.
    std::map<int64_t, std::vector<Use>> used_after;
    for (size_t r = 0; r < run_.rounds.size(); ++r) {
      const RecordedRound& round = run_.rounds[r];
      if (round.sent_after <= first_step_ || round.sent_after > last_step_) continue;
      sent_after[round.sent_after].push_back(r);
      for (size_t p = 0; p < round.parts.size(); ++p) {
        const int64_t used = std::max(round.parts[p].used_after, round.sent_after);
        used_after[used].push_back({r, p});
        sent_after[used];  // A step to stop at.
      }
    }
    for (const auto& [step, rounds] : sent_after) {
      if (step > last_step_) break;
      for (size_t i = 0; i < islands_.size(); ++i) train_until(i, step);
      // What was sent before is taken before what is due is sent; without delay, behind it.
      for (const Use& use : used_after[step]) {
        if (run_.rounds[use.round].sent_after < step) wait(use);
      }
      for (const size_t r : rounds) exchange(r);
      for (const Use& use : used_after[step]) {
        if (run_.rounds[use.round].sent_after == step) wait(use);
      }
    }
    for (size_t i = 0; i < islands_.size(); ++i) train_until(i, last_step_);
    round_times_.write(time_);
    return time_;
  }

 private:
  struct Use {
    size_t round;
    size_t part;
  };

  void train_until(size_t i, int64_t step) {
    const IslandTime now = spent_at(run_.islands[i].marks, step);
    const double computing_s = (now.computing_s - at_[i].computing_s) / islands_[i].speed;
    const double handling_s = (now.handling_s - at_[i].handling_s) / islands_[i].speed;
    const double pausing_s = now.pausing_s - at_[i].pausing_s;
    IslandTime& time = time_.islands[i];
    time.computing_s += computing_s;
    time.handling_s += handling_s;
    time.pausing_s += pausing_s;
    clock_s_[i] += computing_s + handling_s + pausing_s;
    at_[i] = now;
  }

  void wait(const Use& use) {
    const size_t i = run_.rounds[use.round].parts[use.part].island;
    const double until_s = std::max(clock_s_[i], commit_s_.at(use.round)[use.part]);
    time_.islands[i].waiting_s += until_s - clock_s_[i];
    clock_s_[i] = until_s;
  }

  double latency_s(size_t a, size_t b) const {
    return islands_[a].latency_s + islands_[b].latency_s;
  }

  void exchange(size_t r) {
    const RecordedRound& round = run_.rounds[r];
    const size_t num_parts = round.parts.size();
    double opened_s = 0;  // At the coordinator.
    std::vector<double> begun_s(num_parts);
    for (size_t p = 0; p < num_parts; ++p) {
      const size_t i = round.parts[p].island;
      begun_s[p] = clock_s_[i];
      opened_s = std::max(opened_s, begun_s[p] + islands_[i].latency_s);
    }
    const std::vector<double> left_s = send(round, opened_s);
    double committed_s = 0;
    for (size_t p = 0; p < num_parts; ++p) {
      const RecordedPart& part = round.parts[p];
      const double done_s = arrival_s(round, p, opened_s, left_s);
      const double prepared_s = done_s + part.prepare_s / islands_[part.island].speed;
      committed_s = std::max(committed_s, prepared_s + islands_[part.island].latency_s);
    }
    std::vector<double>& commits_s = commit_s_[r];
    double sum_s = 0;
    for (size_t p = 0; p < num_parts; ++p) {
      commits_s.push_back(committed_s + islands_[round.parts[p].island].latency_s);
      sum_s += commits_s.back() - begun_s[p];
    }
    round_times_.add(sum_s / static_cast<double>(num_parts));
  }

  /// When the last bit of each member has left it.
  std::vector<double> send(const RecordedRound& round, double opened_s) {
    const size_t num_parts = round.parts.size();
    std::vector<double> left_s(num_parts);
    std::vector<double> contributed_s(num_parts);
    for (size_t p = 0; p < num_parts; ++p) {
      const RecordedPart& part = round.parts[p];
      const double rate = bits_per_s_ * islands_[part.island].up;
      const double sending_s = 8 * part.sent_bytes / rate;
      const double open_s = opened_s + islands_[part.island].latency_s;
      const SimulatedIsland& island = islands_[part.island];
      // Of a last piece that is cut off anywhere, half on average.
      const bool is_one_piece = part.sent_bytes <= island.piece_bytes;
      const double ahead_bytes = is_one_piece ? part.sent_bytes : island.piece_bytes / 2;
      const double last_s = up_[part.island].send_bulk(open_s - island.burst_s, sending_s);
      left_s[p] = std::max(open_s, last_s - 8 * ahead_bytes / rate);
      // Contributions first; as many bytes again are means.
      contributed_s[p] = left_s[p] - (round.gathers ? 0 : sending_s / 2);
    }
    if (round.gathers) return left_s;
    for (size_t p = 0; p < num_parts; ++p) {
      for (size_t q = 0; q < num_parts; ++q) {
        if (p == q) continue;
        const double there_s =
            contributed_s[q] + latency_s(round.parts[p].island, round.parts[q].island);
        left_s[p] = std::max(left_s[p], there_s);
      }
    }
    return left_s;
  }

  /// When a member has all of the others' bits.
  double arrival_s(const RecordedRound& round, size_t p, double opened_s,
                   const std::vector<double>& left_s) {
    const RecordedPart& part = round.parts[p];
    double first_s = 0;
    double last_s = 0;
    for (size_t q = 0; q < round.parts.size(); ++q) {
      if (q == p) continue;
      const size_t other = round.parts[q].island;
      const double way_s = latency_s(part.island, other);
      const double there_s = opened_s + islands_[other].latency_s + way_s;
      first_s = first_s == 0 ? there_s : std::min(first_s, there_s);
      last_s = std::max(last_s, left_s[q] + way_s);
    }
    const double rate = bits_per_s_ * islands_[part.island].down;
    return std::max(last_s, down_[part.island].send_bulk(first_s, 8 * part.received_bytes / rate));
  }

  const RecordedRun& run_;
  std::span<const SimulatedIsland> islands_;
  double bits_per_s_;
  int64_t first_step_;
  int64_t last_step_;
  std::vector<double> clock_s_;  // By island.
  std::vector<IslandTime> at_;
  std::vector<sim::Line<double, double>> up_;
  std::vector<sim::Line<double, double>> down_;
  std::map<size_t, std::vector<double>> commit_s_;  // By round and part.
  RoundTimes round_times_;
  RunTime time_;
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
  constexpr double kLeast = -9;   // log10 of Gbit/s: one bit per second,
  constexpr double kMost = 6;     // and beyond any line.
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

}  // namespace atl::scaling
