#pragma once
// DeMo, decoupled momentum (Peng, Quesnelle, Kingma, arXiv 2411.19870, algorithm 1). Each replica
// has its own momentum; every step its largest cosine coefficients are sent and leave it, the rest
// stays for later. All replicas step along the sign of the mean of what was sent:
//   m_i = beta m_i + g_i
//   q_i = C(DCT(m_i)),   m_i = m_i - IDCT(q_i)
//   g   = sign(IDCT(mean_i q_i))
// The inner optimiser must be SGD without clipping: theta = theta - lr (g + weight decay).
//
// Deviations: gradients enter m without the learning rate, which a sign does not see but for the
// schedule's slow change; C chooses among consecutive coefficients of the flat buffer, so that its
// chunks may begin inside a tile.
#include <memory>

#include "atoll/method/dct.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class DeMo final : public Strategy {
 public:
  DeMo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
       const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Result<void> do_reduce_gradients(int64_t step) override;
  Digest prepare(std::span<const float> mean_P, std::span<const float> own_P);

  method::TiledDct dct_;
  float decay_;
  // All on the host.
  at::Tensor momentum_P_;
  at::Tensor coefficients_P_;  // DCT(m) while a round is in flight.
  at::Tensor sent_P_;          // IDCT(q)
  at::Tensor direction_P_;     // The round's result.
  at::Tensor live_P_;          // The parameters, for the digest.
};

}  // namespace atl::sync
