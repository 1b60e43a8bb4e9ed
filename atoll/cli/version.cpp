#include "atoll/cli/version.h"

#include "atoll/base/clones.h"
#include "atoll/cli/commit.h"

#define ATOLL_WORDS(...) #__VA_ARGS__
#define ATOLL_WORDS_OF(macro) ATOLL_WORDS(macro)

namespace atl::cli {
namespace {

/// Of the copies of hot loops (base/clones.h), the one that the dynamic linker picks here.
const char* loops() {
  constexpr const char* kPlain = "the compiler's plain ones";
#ifdef __x86_64__
  constexpr bool kHasCopies = sizeof(ATOLL_WORDS_OF(ATOLL_CLONES)) > 1;
  if (!kHasCopies) return kPlain;
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
#endif
  return kPlain;
}

}  // namespace

std::string version_text() { return std::string("atoll ") + ATOLL_VERSION; }

std::string build_text() {
  return version_text() + "\ncommit:   " + kCommit +
         "\ncompiler: " ATOLL_COMPILER "\nLibTorch: " ATOLL_TORCH_VERSION "\nloops:    " + loops();
}

}  // namespace atl::cli
