#pragma once
// Failure, first kind: our own bug. ATOLL_CHECK is on in every build and ends the process, because
// continuing with a broken invariant could train on wrong numbers for days.
#include <string>

namespace atl {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message = {});
}

/// Ends the process with the place and an optional message (a std::string) unless `condition`.
#define ATOLL_CHECK(condition, ...)                                                   \
  do {                                                                                \
    if (!(condition))                                                                 \
      ::atl::check_failed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
