#include "atoll/cli/version.h"

#include "atoll/base/clones.h"
#include "atoll/cli/commit.h"

namespace atl::cli {
namespace {

/// Of the copies of hot loops (base/clones.h), the one that the dynamic linker picks here.
const char* loops() {
#ifdef ATOLL_HAS_CLONES
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
#endif
  return "the compiler's plain ones";
}

}  // namespace

std::string version_text() { return std::string("atoll ") + ATOLL_VERSION; }

std::string build_text() {
  return version_text() + "\ncommit:   " + kCommit +
         "\ncompiler: " ATOLL_COMPILER "\nLibTorch: " ATOLL_TORCH_VERSION "\nloops:    " + loops();
}

}  // namespace atl::cli
