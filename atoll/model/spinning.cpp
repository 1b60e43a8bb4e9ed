#include "atoll/model/spinning.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

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

void release_team() {
#ifdef _OPENMP
  omp_pause_resource_all(omp_pause_soft);
#endif
}

SleepingTeam::SleepingTeam()
    : leader_([this] {
// Beside the thread that leads it as many as there are cores.
#pragma omp parallel num_threads(std::thread::hardware_concurrency() + 1)
        ends_.wait(false);
      }) {
}

SleepingTeam::~SleepingTeam() {
  ends_.test_and_set();
  ends_.notify_all();
  leader_.join();  // With it the threads of its team end, and are not counted any more.
}

void Spinning::watch() {
  SpinPolicy policy;
  std::optional<SleepingTeam> team;
  auto before = waited_for_cores();
  while (before && !ends_.try_acquire_for(kPeriod)) {
    const auto now = waited_for_cores();
    if (!now) break;
    const std::chrono::nanoseconds waited(*now - *before);
    const bool spins = policy.next(std::chrono::duration<double>(waited) / kPeriod);
    if (spins) team.reset();
    if (!spins && !team) team.emplace();
    before = now;
  }
}

Spinning::Spinning() {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  watcher_ = std::thread([this] { watch(); });
}

Spinning::~Spinning() {
  ends_.release();
  if (watcher_.joinable()) watcher_.join();
}

}  // namespace atl::model
