#pragma once
// Error feedback (Seide et al. 2014; Karimireddy et al. 2019, 1901.09847): what an encoding lost is
// added to what is encoded next, so that nothing is lost for good, only late. With C the codec,
// x_t the values of turn t and e_0 = 0:
//
//   sent_t = C(x_t + decay e_t),   e_(t+1) = x_t + decay e_t - sent_t
//
// With decay 1 the sum of all that was sent is the sum of all values less the last residual.
// The new residual is staged until it is known whether the encoding arrived: commit() makes it
// real, after discard() the next turn starts from the old one. One thread at a time.
#include "atoll/codec/codec.h"

namespace atl::codec {

class ErrorFeedback {
 public:
  /// For `count` values each turn; `decay` is in [0, 1]. The codec must outlive this.
  ErrorFeedback(const Codec& codec, size_t count, float decay = 1);

  /// Appends the encoding of values + decay * residual to `out`, and stages what it loses in place
  /// of anything staged before. Throws InputError as Codec::encode; nothing is then staged.
  void encode(std::span<const float> values, Bytes& out, uint32_t sequence = 0);

  /// What the members decode: sent_t of the last encode(). Until the next one.
  std::span<const float> sent() const { return sent_; }

  /// Makes the staged residual real; there must be one.
  void commit();
  void discard() { is_staged_ = false; }

  /// e_t: for checkpoints, which may also set it.
  std::span<float> residual() { return residual_; }

 private:
  const Codec& codec_;
  float decay_;
  std::vector<float> residual_;
  std::vector<float> staged_;
  std::vector<float> sent_;
  bool is_staged_ = false;
};

}  // namespace atl::codec
