#include "atoll/model/spinning.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <stop_token>

namespace atl::model {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(200);

/// Nanoseconds that threads of this process were ready and had no core, so far.
std::optional<int64_t> waited_for_cores() {
  int64_t sum = 0;
  bool is_told = false;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "schedstat");
    int64_t ran = 0;
    int64_t waited = 0;
    if (!(file >> ran >> waited)) continue;  // It has ended meanwhile.
    sum += waited;
    is_told = true;
  }
  return is_told ? std::optional(sum) : std::nullopt;
}

}  // namespace

bool SpinPolicy::next(double delay) {
  constexpr double kMuch = 0.25;  // Two threads alone: 0.05. Beside one busy process: 0.5 to 0.9.
  if (!spins_) {
    spins_ = --sleep_ <= 0;
    calm_ = 0;
    return spins_;
  }
  if (delay <= kMuch) {
    if (++calm_ == kShortest) pause_ = kShortest;
    return true;
  }
  spins_ = false;
  sleep_ = pause_;
  pause_ = std::min(2 * pause_, kLongest);
  return false;
}

struct SleepingTeam::State {
  std::mutex mutex;
  std::condition_variable ends;
  bool has_ended = false;
};

SleepingTeam::SleepingTeam()
    : state_(std::make_unique<State>()), leader_([state = state_.get()] {
// One more than the cores that this process may use, beside the thread that leads it.
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
        {
          std::unique_lock lock(state->mutex);
          state->ends.wait(lock, [&] { return state->has_ended; });
        }
      }) {
}

SleepingTeam::~SleepingTeam() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->has_ended = true;
  }
  state_->ends.notify_all();
  leader_.join();  // With it the threads of its team end, and are not counted any more.
}

struct Spinning::State {
  std::mutex mutex;
  std::condition_variable_any stops;

  void watch(const std::stop_token& stop) {
    SpinPolicy policy;
    std::optional<SleepingTeam> team;
    auto before = waited_for_cores();
    std::unique_lock lock(mutex);
    while (before && !stops.wait_for(lock, stop, kPeriod, [] { return false; })) {
      if (stop.stop_requested()) break;
      const auto now = waited_for_cores();
      if (!now) break;
      const std::chrono::nanoseconds waited(*now - *before);
      const bool spins = policy.next(std::chrono::duration<double>(waited) / kPeriod);
      if (spins) team.reset();
      if (!spins && !team) team.emplace();
      before = now;
    }
  }
};

Spinning::Spinning() : state_(std::make_unique<State>()) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  watcher_ =
      std::jthread([state = state_.get()](const std::stop_token& stop) { state->watch(stop); });
}

Spinning::~Spinning() = default;

}  // namespace atl::model
