#pragma once
// numpy's random numbers, bit for bit: the generators behind published data orders. NeoX shuffles
// with RandomState, OLMo with PCG64. Pure computation; a generator belongs to one thread.
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

#include "atoll/base/random.h"

namespace atl::data {

/// numpy's SeedSequence (after O'Neill's seed_seq_fe): hashes a seed of any length into a pool of
/// four words, then stretches the pool to as many as a generator needs.
class SeedSequence {
 public:
  /// The seed as 32-bit words, the lowest first.
  explicit SeedSequence(std::span<const uint32_t> entropy);
  /// numpy's generate_state(4, uint64).
  std::array<uint64_t, 4> generate() const;

 private:
  uint32_t hash_mix(uint32_t value);

  uint32_t hash_constant_ = 0x43b0d7e5;
  std::array<uint32_t, 4> pool_{};
};

/// numpy's PCG64: a 128-bit linear congruential generator with the XSL-RR output (O'Neill 2014).
class Pcg64 {
 public:
  __extension__ using Uint128 = unsigned __int128;

  /// Seeded with a number, through a SeedSequence.
  explicit Pcg64(Uint128 seed);
  explicit Pcg64(const SeedSequence& seed);
  uint64_t next64();
  /// Halves of a next64(): the low one first, the high one kept for the next call.
  uint32_t next32();

 private:
  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  uint32_t kept_ = 0;
  bool has_kept_ = false;
};

/// numpy's RandomState: the Mersenne Twister, seeded with one 32-bit number.
class RandomState {
 public:
  explicit RandomState(uint32_t seed) : twister_(seed) {}
  uint32_t next32() { return static_cast<uint32_t>(twister_()); }
  /// The high half is drawn first.
  uint64_t next64() {
    const uint64_t high = next32();
    return (high << 32) | next32();
  }

 private:
  MersenneTwister twister_;
};

/// Uniform in [0, max] by masked rejection, as both of numpy's shuffles draw their indices: from 32
/// bits where they suffice, else from 64.
template <typename Generator>
uint64_t below_or_equal(Generator& generator, uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);
  for (;;) {
    const uint64_t value = (max <= 0xffffffffU ? generator.next32() : generator.next64()) & mask;
    if (value <= max) return value;
  }
}

/// numpy's shuffle of a one-dimensional array, which is the same loop in RandomState and Generator.
template <typename Generator, typename Values>
void shuffle(Generator& generator, Values& values) {
  for (size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[below_or_equal(generator, i)]);
  }
}

}  // namespace atl::data
