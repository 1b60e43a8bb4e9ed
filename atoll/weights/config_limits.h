#pragma once
// What the numbers of a ModelConfig may be, for its settings and its checks.
#include <cstdint>

namespace atl::weights {

// Far beyond any model, and small enough that the number of parameters stays within int64.
inline constexpr int64_t kMaxSize = int64_t{1} << 24;
inline constexpr int64_t kMaxHidden = int64_t{1} << 20;
inline constexpr int64_t kMaxHeads = 4096;  // And the most elements of one head.
inline constexpr double kMaxRopeFactor = 1024;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxExpertsInAll = 100'000;

}  // namespace atl::weights
