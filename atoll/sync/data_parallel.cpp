#include "atoll/sync/data_parallel.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

DataParallel::DataParallel(const method::SyncOptions& options, Replica replica,
                           collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      mean_P_(host_buffer(replica_.values_P)),
      live_P_(host_buffer(replica_.values_P)) {
  if (!leaves_out()) return;
  for (at::Tensor* buffer : {&residual_P_, &corrected_P_, &new_residual_P_}) {
    *buffer = host_buffer(replica_.values_P);
  }
}

Result<void> DataParallel::do_reduce_gradients(int64_t step) {
  if (leaves_out()) corrected_P_.copy_(replica_.gradients_P).add_(residual_P_);
  const at::Tensor& sent_P = leaves_out() ? corrected_P_ : replica_.gradients_P;
  const bool is_usable = can_send(sent_P);
  // What cannot be used is not kept for later either.
  if (leaves_out() && !is_usable) corrected_P_.copy_(residual_P_);
  begin({.round = step - 1, .step = step, .num_steps = 1}, sent_P,
        {.weight = is_usable ? replica_.tokens_per_step : 0,
         .needs_own = leaves_out(),
         .prepare = [this](std::span<const float> mean, std::span<const float> own) {
           return prepare(mean, own);
         }});
  const auto taken = wait(step - 1);
  if (!taken) return tl::unexpected(taken.error());
  if (taken->fate != Fate::kLeftOut) std::swap(residual_P_, new_residual_P_);
  replica_.gradients_P.copy_(mean_P_);
  return {};
}

Digest DataParallel::prepare(std::span<const float> mean_P, std::span<const float> own_P) {
  std::ranges::copy(mean_P, span_of(mean_P_).begin());
  live_P_.copy_(replica_.values_P);
  if (leaves_out()) {
    std::ranges::transform(span_of(corrected_P_), own_P, span_of(new_residual_P_).begin(),
                           std::minus());
  }
  return step_digest(mean_P_, live_P_);
}

at::Tensor DataParallel::global_parameters() const { return replica_.values_P; }

std::vector<std::pair<std::string, at::Tensor>> DataParallel::state() {
  if (!leaves_out()) return {};
  return {{"outer.residual", residual_P_}};
}

void DataParallel::restore_global(const at::Tensor&) {}  // The live parameters are the global ones.

}  // namespace atl::sync
