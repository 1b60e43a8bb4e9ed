#pragma once
// Counter-based random numbers: f(seed, stream, index). No state travels, so the numbers do not
// depend on threads, on the order of calls, or on where a run was resumed.
#include <cstdint>
#include <random>
#include <string>

namespace atl {

/// The MT19937 that numpy's RandomState is, for orders that others drew from it. What Atoll draws
/// itself has no state.
using MersenneTwister = std::mt19937;

/// The 64 random bits at (seed, stream, index): three rounds of the SplitMix64 finaliser (Steele,
/// Lea & Flood 2014). Not for secrets.
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/// Uniform in [0, 1), 53 bits.
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/// Standard normal by Box-Muller from the two uniforms at 2*index and 2*index+1.
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);

/// A stream number from a name, e.g. a parameter's, so that adding a tensor leaves the others as
/// they were.
uint64_t random_stream(const std::string& name);

/// From the operating system's entropy.
uint64_t random_id();
/// The same as sixteen hexadecimal digits: names for runs and peers.
std::string random_name();

}  // namespace atl
