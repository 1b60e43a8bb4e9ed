#include "atoll/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace atl {
void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "atoll: internal error at %s:%d: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::abort();
}
}  // namespace atl
