#pragma once
// Time comes in through constructors, so the same code runs under the simulator's clock. now() of
// the real clocks is called nowhere else.
#include <chrono>
#include <cstdint>

namespace atl {

using Duration = std::chrono::nanoseconds;
/// Time since an arbitrary start; it never goes back.
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

/// The machine's monotonic clock.
class SystemClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
};

/// A clock that stands still until it is told otherwise (tests, the simulator).
class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Duration step) { now_ += step; }

 private:
  Time now_{};
};

/// Seconds that the cores have worked for this process so far, all threads together.
double process_cpu_seconds();

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
inline Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// Seconds since 1970, for time stamps in files that people and TensorBoard read.
double wall_time();

}  // namespace atl
