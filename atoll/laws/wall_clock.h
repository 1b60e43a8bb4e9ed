#pragma once
// The idealised wall-clock of Scaling Laws for DiLoCo, appendix A: computing and communication one
// after the other, all-reduces at full bandwidth. Pure.
#include <array>
#include <string>
#include <vector>

namespace atl::laws {

struct Network {
  const char* name;
  double gbps;
  double latency_s;
};
/// The paper's three. Inside an island it is always the first.
constexpr std::array<Network, 3> kNetworks = {
    {{"high", 400, 1e-4}, {"medium", 100, 1e-3}, {"low", 10, 1e-2}}};

struct TrainingPlan {
  double params = 0;
  double tokens = 0;
  double batch_tokens = 0;           // Of all replicas together.
  double chips = 0;                  // Of all replicas together.
  double flops_per_second = 300e12;  // Of a chip, as trained.
  double replicas = 0;               // 0: data-parallel.
  double sync_every = 30;            // Inner steps; data-parallel has none.
  double bits = 16;                  // Per parameter, where gradients are reduced at every step.
  double outer_bits = 16;            // Per parameter, between islands at their syncs.

  double steps() const { return tokens / batch_tokens; }
  double compute_s() const { return 6 * params * tokens / (chips * flops_per_second); }
  /// One step's computing.
  double step_s() const { return compute_s() / steps(); }
};

/// Seconds of communication of the whole training with `between` the islands. Data-parallel and a
/// single replica reduce gradients over that network at every step. Low-bit codecs carry outer
/// gradients alone.
double communication_s(const TrainingPlan& plan, const Network& between);

/// Throws UsageError naming what does not go together.
void check(const TrainingPlan& plan);

/// The methods that appendix A tells apart, for so many replicas: data-parallel, one replica, and
/// that many; or the one method that is named. Checked.
std::vector<TrainingPlan> plans_of(const TrainingPlan& plan, const std::string& method);

}  // namespace atl::laws
