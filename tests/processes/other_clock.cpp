// For tests: preloaded into a program, this sets its wall clock off by $OTHER_CLOCK seconds. What
// it measures time with stays right, as on a machine whose clock was set wrong.
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  const char* const offset = std::getenv("OTHER_CLOCK");
  if (clock == CLOCK_REALTIME && offset != nullptr) out->tv_sec += std::atoll(offset);
  return result;
}

extern "C" time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
