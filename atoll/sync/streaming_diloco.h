#pragma once
// Streaming DiLoCo (arXiv 2501.18512, algorithm 2): DiLoCo fragment by fragment. A fragment's outer
// gradient, its old global value minus the live one, is sent at its own step and travels while
// training goes on; tau steps later its outer step is taken from the old global value and mixed
// into the live parameters:
//   Delta_p = mean_m Q(g_p - theta_m,p)                  sent after step t
//   g_p     = OuterOpt(g_p, Delta_p)                     after step t + tau
//   theta_m,p = alpha * theta_m,p + (1 - alpha) * g_p
//
// Where training goes on without a due step to take the result at (Fate::kOvertaken), what a
// replica has learned since the snapshot s stays its own:
//   theta_m,p = theta_m,p + (1 - alpha) * (g_p - s_m,p)
// which with alpha = 0 is DiLoCo's of diloco.h.
//
// Deviations: after the last step everything in flight is applied and every fragment sent once
// more, so that no replica's work is lost. Low-bit codecs are summed from every member's own
// encoding (collective::Topology::kGather), so nothing is quantised twice.
#include <map>
#include <memory>
#include <vector>

#include "atoll/method/fragments.h"
#include "atoll/method/outer_optimizer.h"
#include "atoll/sync/outer_state.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class StreamingDiLoCo final : public Strategy {
 public:
  StreamingDiLoCo(const method::SyncOptions& options, Replica replica,
                  collective::Averager& averager, const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  /// In between, fragments are of different ages.
  bool lands(int64_t /*step*/) const override { return alpha_ == 0; }
  void do_resume(const std::vector<OwnRound>& on_their_way) override;
  std::vector<std::vector<at::Tensor>> state_of(int64_t fragment) const override;
  Digest absorb(const collective::Commit& commit, int64_t number,
                std::span<const float> mean_F) override;
  void do_join() override;
  void launch(const OwnRound& own) override;
  void take(const OwnRound& own, Fate fate) override;
  /// A fragment F on its way. Its tensors live here until the round is over.
  struct Flight {
    OwnRound own;
    at::Tensor delta_F;
    OuterState next_F;  // The round's result before its commit: of prepare().
  };

  /// Without an outer gradient; its files, if it has any, are made here, on the training thread.
  Flight flight_of(const OwnRound& own) const;

  /// What the fragment's outer gradient is now.
  at::Tensor delta_of(int64_t fragment) const;
  void send(const OwnRound& own, at::Tensor delta_F);
  Digest prepare(Flight& flight, std::span<const float> mean_F);
  enum class Use : uint8_t { kMix, kTake, kFollow, kGoOn };
  /// The flight's result is the fragment's state from here on; live parameters are mixed with it,
  /// replaced by it, or moved by as much as it moved; or, elastic, those of the snapshot are mixed
  /// with it, and what was learned since goes on top.
  void adopt(const Flight& flight, Use use);

  bool keeps_flights_;  // In a checkpoint.
  float alpha_;
  method::OuterOptimizer outer_;
  std::vector<method::Fragment> fragments_;
  OuterState now_;                     // Fragment by fragment, what its last committed round left.
  at::Tensor origin_P_;                // now_.theta_P, where outer gradients are made.
  at::Tensor in_flight_P_;             // Host. For checkpoints: the outer gradients on their way.
  std::map<int64_t, Flight> flights_;  // By round; a fragment is in it at most once.
};

}  // namespace atl::sync
