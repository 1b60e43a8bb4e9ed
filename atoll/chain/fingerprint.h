#pragma once
// What is left of a row of activations so that it can be compared with another machine's: a random
// projection, in 8 bytes.
//
// Each value of the row is added or subtracted, as the seed says, and the sum is kept. Of two rows
// that differ by e the sums differ by the projection of e, whose mean square over all seeds is
// |e|^2: over a stretch of tokens the root mean square of (difference / |row|) is the relative
// error, as well as so many samples tell it. It is about
//
//   0 to 1e-4   honest servers: FP32 with sums in another order. Atoll's on CPUs: 0, whatever the
//               instruction set, the threads and what is read beside it
//   0.01        1 % of noise; weights in 8 bits (blocks of 32) for bf16; activations in bf16
//   0.1 to 0.3  weights in 4 bits
//   1           another checkpoint
//
// kMostDifference stands between. With Gaussian errors of 1 %, 16 tokens stay below it in one of
// 20,000 stretches; honest ones of 1e-4 would need 40 standard deviations in every token.
//
// A seed is drawn by who takes the fingerprint, when it has the row: who sends rows cannot shape
// them so that a fingerprint which it does not know yet comes out right.
#include <cstdint>
#include <span>
#include <vector>

namespace atl::chain {

constexpr double kMostDifference = 0.004;

struct Fingerprint {
  uint32_t seed = 0;
  float value = 0;

  bool operator==(const Fingerprint&) const = default;
};

/// Of a row of finite values.
Fingerprint fingerprint(std::span<const float> row_C, uint32_t seed);

/// The relative error between the rows that fingerprints were taken of and these: as many rows as
/// fingerprints, one behind the other. Infinite where a fingerprint is not finite; 0 without rows.
double difference(std::span<const Fingerprint> said, std::span<const float> rows_TC);

/// Takes fingerprints with seeds that nobody else knows. Not thread-safe.
class Witness {
 public:
  Witness();
  /// Of rows of `hidden_size` values, one behind the other.
  std::vector<Fingerprint> see(std::span<const float> rows_TC, int64_t hidden_size);

 private:
  uint64_t secret_;
  uint64_t num_seen_ = 0;
};

}  // namespace atl::chain
