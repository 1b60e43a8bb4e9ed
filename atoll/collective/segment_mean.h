#pragma once
// The mean of one segment: the one place where the contributions of members meet, in a round that
// is exchanged (exchange.h) and in one that was missed (round_result.h).
//
//   mean = sum over ranks, in their order, of (w_i / W) * decode(contribution_i)        (FP32)
//
// with w_i / W rounded once to FP32, never fused, and members of weight 0 left out: the same bits
// on every machine. Where one member makes it for all it then travels encoded, and who made it too
// holds what the others decode; what the codec loses of it may be added to the next round's.
//
// Whoever has one of these knows only which contribution it wants next, and whether it wants none
// any more. So a rule that is no sum (a median, which wants all before it is made), or one of
// contributions that nobody may read alone (masked sums), takes its place here.
//
// Invariants: contributions go in by rising rank, each once; the mean is whole when none is wanted.
//
// Pure; it reads what strangers sent: all that decodes throws InputError where it is no encoding of
// finite values, and the mean is void then. Not thread-safe.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"

namespace atl::codec {
class Codec;
}

namespace atl::collective {

/// mean[i] += coefficient * values[i], in FP32, never fused. The one loop of every mean.
void add_scaled(std::span<float> mean, std::span<const float> values, float coefficient);

/// The same for a mean that is zero, whatever it holds: bit for bit, the sign of a zero too.
void set_scaled(std::span<float> mean, std::span<const float> values, float coefficient);

/// w_i / W rounded to FP32, by rank; all 0 when W is.
std::vector<float> coefficients(std::span<const int64_t> weights);

/// What the segments of one attempt have in common.
struct MeanRule {
  const codec::Codec* codec = nullptr;
  uint32_t sequence = 0;            // Under which contributions and means are encoded.
  std::vector<float> coefficients;  // By rank; 0: left out.
};

class SegmentMean {
 public:
  /// Wants nothing.
  SegmentMean() = default;
  /// `mean` is where it is made, and may hold anything; both must outlive this object. There is a
  /// mean only if some coefficient is not 0.
  SegmentMean(const MeanRule& rule, std::span<float> mean);

  /// The rank whose contribution it wants now; nothing: it is whole.
  std::optional<int32_t> wanted() const;
  /// Adds the contribution of that rank. `decoded`, as long as the mean, then holds it as all
  /// decode it.
  void add(std::span<const std::byte> contribution, std::span<float> decoded);

  /// Adds `residual` (empty: none) to the whole mean, and appends it to `out` as it is to travel.
  void encode(std::span<const float> residual, Bytes& out);
  /// From here on the mean is what all decode of one that travels. `lost` (empty: not wanted) is
  /// what this one had more.
  void hold(std::span<const std::byte> encoded, std::span<float> lost = {});

 private:
  void skip_those_left_out();

  const MeanRule* rule_ = nullptr;
  std::span<float> mean_;
  int32_t next_ = 0;
  bool has_sum_ = false;
};

}  // namespace atl::collective
