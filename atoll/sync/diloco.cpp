#include "atoll/sync/diloco.h"

#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

DiLoCo::DiLoCo(const SyncOptions& options, Replica replica, collective::Averager& averager,
               const Clock& clock)
    : replica_(std::move(replica)),
      averager_(averager),
      clock_(clock),
      sync_every_(options.sync_every),
      outer_{.lr = static_cast<float>(options.outer_lr),
             .momentum = static_cast<float>(options.outer_momentum),
             .nesterov = options.outer_nesterov},
      global_P_(host_buffer(replica_.values_P)),
      momentum_P_(host_buffer(replica_.values_P)),
      delta_P_(host_buffer(replica_.values_P)),
      new_global_P_(host_buffer(replica_.values_P)),
      new_momentum_P_(host_buffer(replica_.values_P)) {
  global_P_.copy_(replica_.values_P);
}

Result<void> DiLoCo::reduce_gradients(int64_t) { return {}; }

bool DiLoCo::syncs_after(int64_t step) const {
  return step % sync_every_ == 0 || step == replica_.last_step;
}

Result<void> DiLoCo::after_step(int64_t step) {
  if (!syncs_after(step)) return {};
  const Time begin = clock_.now();
  const int64_t round = (step - 1) / sync_every_;
  const int64_t period = step - round * sync_every_;

  // The outer gradient points from where this replica is back to where all replicas started.
  delta_P_.copy_(replica_.values_P);
  const std::span<float> delta = span_of(delta_P_);
  const std::span<const float> global = span_of(global_P_);
  for (size_t i = 0; i < delta.size(); ++i) delta[i] = global[i] - delta[i];

  averager_.begin({.round = round,
                   .fragment = 0,
                   .step = step,
                   .weight = period * replica_.tokens_per_step,
                   .values = delta,
                   .prepare = [this](std::span<const float> mean) { return prepare(mean); }});
  const auto commit = averager_.wait(round);
  if (!commit) return tl::unexpected(commit.error());

  std::swap(global_P_, new_global_P_);
  std::swap(momentum_P_, new_momentum_P_);
  replica_.values_P.copy_(global_P_);
  stats_.rounds += 1;
  stats_.digest = hex(commit->digest);
  stats_.stop_requested = stats_.stop_requested || commit->stop;
  stats_.stall_seconds += seconds(clock_.now() - begin);
  return {};
}

Digest DiLoCo::prepare(std::span<const float> mean_delta_P) {
  outer_.step(mean_delta_P, span_of(global_P_), span_of(momentum_P_), span_of(new_global_P_),
              span_of(new_momentum_P_));
  return Sha256()
      .update(tree_digest(bytes_of(new_global_P_)))
      .update(tree_digest(bytes_of(new_momentum_P_)))
      .finish();
}

at::Tensor DiLoCo::global_parameters() const { return global_P_; }

std::vector<std::pair<std::string, at::Tensor>> DiLoCo::state() {
  return {{"outer.momentum", momentum_P_}};
}

void DiLoCo::restore_global(const at::Tensor& global_P) { global_P_.copy_(global_P); }

}  // namespace atl::sync
