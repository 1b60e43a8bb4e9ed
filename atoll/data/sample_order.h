#pragma once
// The order of rows in a pass: numpy's Generator(PCG64(seed + pass + 1)).shuffle(arange(n)), bit
// for bit, which is OLMo-core's order (its epochs count from 1, our passes from 0). Pure functions.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace atl::data {

/// numpy's PCG64: a 128-bit linear congruential generator with the XSL-RR output (O'Neill 2014),
/// seeded through numpy's SeedSequence.
class Pcg64 {
 public:
  __extension__ using Uint128 = unsigned __int128;

  explicit Pcg64(Uint128 seed);
  uint64_t next64();
  /// Halves of a next64(): the low one first, the high one kept for the next call.
  uint32_t next32();
  /// Uniform in [0, max] by masked rejection, as numpy's legacy-free shuffle draws its indices.
  uint64_t below_or_equal(uint64_t max);

 private:
  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  uint32_t kept_ = 0;
  bool has_kept_ = false;
};

/// numpy's Generator.shuffle of a one-dimensional array.
void shuffle(Pcg64& generator, std::span<uint32_t> values);

/// The rows 0 ... num_rows-1 in the order of pass `pass` (from 0). num_rows is below 2^32.
std::vector<uint32_t> sample_order(uint64_t seed, int64_t pass, int64_t num_rows);

}  // namespace atl::data
