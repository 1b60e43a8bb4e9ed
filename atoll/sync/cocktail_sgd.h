#pragma once
// CocktailSGD (Wang et al., ICML 2023): every step the replicas exchange, heavily compressed, how
// far each is from a reference that all share; what compression loses stays for later steps, on
// both sides. With x the live parameters, g the reference, C the codec and e the residual of the
// member that owns a share:
//   sent      P = C(x - g)              what was not sent stays in x - g
//   mean      Q = C(mean_i P_i + e)     e' = mean_i P_i + e - Q
//   applied   x += Q - P,  g += Q
// With delay 1 (sync.fragment_sync_delay) this travels during the next inner step; it is applied
// after it, before the next difference is taken.
//
// Deviations: FP32 instead of FP16 state; shares need not be equal; after the last step the rest of
// the differences is averaged uncompressed, so that no replica's work is lost. All replicas compare
// digests of g: a SHA-256 every kFullDigestEvery rounds, a fast hash in between.
#include <memory>

#include "atoll/codec/codec.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class CocktailSgd final : public Strategy {
 public:
  static constexpr int64_t kFullDigestEvery = 16;

  CocktailSgd(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
              const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  bool lands(int64_t step) const override { return step == replica_.pace.last_step; }
  void launch(const OwnRound& own) override;
  void take(const OwnRound& own, Fate fate) override;
  Digest prepare(int64_t round, std::span<const float> mean_P, std::span<const float> own_P);

  std::unique_ptr<codec::Codec> exact_;  // For the last round.
  at::Tensor reference_P_;               // Host. g
  at::Tensor residual_P_;                // Host. e, of this member's share.
  at::Tensor difference_P_;              // Host. x - g while a round is in flight.
  at::Tensor new_reference_P_;
  at::Tensor new_residual_P_;
  at::Tensor shift_P_;  // Host. Q - P: what the live parameters move by.
};

}  // namespace atl::sync
