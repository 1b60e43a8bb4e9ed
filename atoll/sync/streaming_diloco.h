#pragma once
// Streaming DiLoCo (arXiv 2501.18512, algorithm 2): DiLoCo fragment by fragment. A fragment's outer
// gradient, its old global value minus the live one, is sent at its own step and travels while
// training goes on; tau steps later its outer step is taken from the old global value and mixed
// into the live parameters:
//   Delta_p = mean_m Q(g_p - theta_m,p)                  sent after step t
//   g_p     = OuterOpt(g_p, Delta_p)                     after step t + tau
//   theta_m,p = alpha * theta_m,p + (1 - alpha) * g_p
//
// In elastic pace (Replica::is_elastic) the run calls the rounds, one at a time, round r for
// fragment r mod P. What a replica has learned since the snapshot s stays its own:
//   theta_m,p = theta_m,p + (1 - alpha) * (g_p - s_m,p)
// which with alpha = 0 is DiLoCo's of diloco.h.
//
// Deviations: after the last step everything in flight is applied and every fragment sent once
// more, so that no replica's work is lost. Low-bit codecs are summed from every member's own
// encoding (collective::Topology::kGather), so nothing is quantised twice.
#include <deque>
#include <memory>
#include <optional>
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
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Result<void> do_after_step(int64_t step) override;
  void do_resume(int64_t step) override;
  int64_t next_due(int64_t step) const override;
  std::vector<std::vector<at::Tensor>> state_of(int64_t fragment) const override;
  Digest absorb(const collective::Commit& commit, std::span<const float> mean_F) override;
  void do_join(int64_t step) override;
  void launch_due(const collective::DueRound& due) override;
  void take(int64_t round, Fate fate) override;
  /// A fragment F on its way. Its tensors live here until the round is over.
  struct Flight {
    int64_t fragment = 0;
    int64_t round = 0;
    int64_t number = 0;  // Of the fragment's outer steps, from 1.
    int64_t due = 0;     // The step after which it is applied.
    at::Tensor delta_F;
    std::optional<OuterState> next_F;  // The round's result before its commit: from prepare().
  };

  /// Sends the fragment as it is after `step`.
  void send(int64_t fragment, int64_t step);
  /// What the fragment's outer gradient is now.
  at::Tensor delta_of(int64_t fragment) const;
  /// The flight of a fragment that is sent after `step`, with `delta_F` as its outer gradient.
  Flight flight_after(int64_t fragment, int64_t step, at::Tensor delta_F) const;
  void launch(Flight flight, int64_t step, int64_t num_steps);
  /// Elastic: how many times a round's fragment has been sent with it.
  int64_t number_in_turn(int64_t round) const;
  Digest prepare(Flight& flight, std::span<const float> mean_F);
  Result<void> apply_front();
  enum class Use : uint8_t { kMix, kTake, kFollow, kGoOn };
  /// The flight's result is the fragment's state from here on; live parameters are mixed with it,
  /// replaced by it, or moved by as much as it moved; or, elastic, those of the snapshot are mixed
  /// with it, and what was learned since goes on top.
  void adopt(const Flight& flight, Use use);

  int64_t delay_;
  float alpha_;
  method::OuterOptimizer outer_;
  std::vector<method::Fragment> fragments_;
  method::FragmentSchedule schedule_;
  OuterState now_;              // Fragment by fragment, what its last committed round left.
  at::Tensor origin_P_;         // now_.theta_P, where outer gradients are made.
  at::Tensor in_flight_P_;      // Host. For checkpoints: the outer gradients on their way.
  std::deque<Flight> flights_;  // Oldest first; a fragment is in it at most once.
};

}  // namespace atl::sync
