#pragma once
// Whether threads that wait for each other keep their cores. A training step or an evaluation waits
// thousands of times a second, and GNU's OpenMP lets a waiting thread spin for milliseconds: the
// fastest there is on a machine of one's own. Where other processes want the cores too, that is the
// time in which the thread it waits for could have run, and everything takes many times as long;
// there waiting threads are better put to sleep. How long they spin is fixed when a process begins.
// But while OpenMP has more threads than cores, it spins hardly at all: a team that only sleeps is
// the switch.
#include <atomic>
#include <semaphore>
#include <thread>

namespace atl::model {

/// Decides it from what the threads of this process have to wait for cores. While they sleep that
/// says nothing (woken threads are put behind each other even on idle cores), so now and then they
/// spin for a period, to see: soon at first, then ever less often. Pure.
class SpinPolicy {
 public:
  /// `delay`: the time that threads of this process were ready and had no core in the last period,
  /// in periods. Returns whether they are to spin in the next one.
  bool next(double delay);

 private:
  bool spins_ = true;
  int calm_ = 0;   // Periods of spinning without much delay.
  int sleep_ = 0;  // Periods that are left of sleeping.
  int pause_ = kShortest;

  static constexpr int kShortest = 5;
  static constexpr int kLongest = 50;
};

/// While it lives, a thread of its own decides for this process, every fifth of a second. Where the
/// user has set GOMP_SPINCOUNT or OMP_WAIT_POLICY, or the system does not say what threads wait
/// for, it does nothing.
class Spinning {
 public:
  Spinning();
  ~Spinning();
  Spinning(const Spinning&) = delete;
  Spinning& operator=(const Spinning&) = delete;

  /// Whether it does anything.
  bool decides() const { return watcher_.joinable(); }

 private:
  void watch();

  std::binary_semaphore ends_{0};
  std::thread watcher_;
};

/// Ends the threads that OpenMP keeps for the calling thread, which leaves its work to another one
/// from now on: they count too, and with more threads than cores none spins.
void release_team();

/// While it lives, OpenMP counts more threads than cores.
class SleepingTeam {
 public:
  SleepingTeam();
  ~SleepingTeam();
  SleepingTeam(const SleepingTeam&) = delete;
  SleepingTeam& operator=(const SleepingTeam&) = delete;

 private:
  std::atomic_flag ends_;
  std::thread leader_;
};

}  // namespace atl::model
