#pragma once
#include <cstdint>

namespace atl {

/// Sixty-four bits of which each hangs on all of those given: the finaliser of SplitMix64 (Steele,
/// Lea & Flood 2014). One-to-one. Behind steps of kMixStep it is their generator.
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

inline constexpr uint64_t kMixStep = 0x9e3779b97f4a7c15ULL;

}  // namespace atl
