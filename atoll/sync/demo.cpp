#include "atoll/sync/demo.h"

#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

DeMo::DeMo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
           const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      dct_(replica_.specs),
      decay_(static_cast<float>(options.momentum_decay)) {
  for (at::Tensor* buffer : {&momentum_P_, &coefficients_P_, &sent_P_, &direction_P_, &live_P_}) {
    *buffer = host_buffer(replica_.values_P);
  }
}

Result<void> DeMo::do_reduce_gradients(int64_t step) {
  live_P_.copy_(replica_.values_P);
  direction_P_.copy_(replica_.gradients_P);
  const std::span<const float> gradient = span_of(direction_P_);
  const std::span<float> momentum = span_of(momentum_P_);
  // A gradient that cannot be used must not stay in the momentum for ever.
  bool is_usable = can_send(direction_P_);
  for (size_t i = 0; i < momentum.size(); ++i) {
    momentum[i] = decay_ * momentum[i] + (is_usable ? gradient[i] : 0.0F);
  }
  dct_.forward(momentum, span_of(coefficients_P_));
  if (!can_send(coefficients_P_)) {  // Nor a momentum that has grown too large.
    momentum_P_.zero_();
    coefficients_P_.zero_();
    is_usable = false;
  }
  begin({.round = step - 1, .step = step, .num_steps = 1}, coefficients_P_,
        {.weight = is_usable ? replica_.tokens_per_step : 0,
         .needs_own = true,
         .prepare = [this](std::span<const float> mean, std::span<const float> own) {
           return prepare(mean, own);
         }});
  const auto taken = wait(step - 1);
  if (!taken) return tl::unexpected(taken.error());
  momentum_P_.sub_(sent_P_);
  // Nor one that the others would not have.
  if (taken->fate == Fate::kLeftOut) momentum_P_.zero_();
  replica_.gradients_P.copy_(direction_P_);
  return {};
}

Digest DeMo::prepare(std::span<const float> mean_P, std::span<const float> own_P) {
  dct_.inverse(own_P, span_of(sent_P_));
  const std::span<float> direction = span_of(direction_P_);
  dct_.inverse(mean_P, direction);
  for (float& value : direction) value = static_cast<float>((value > 0) - (value < 0));
  return step_digest(direction_P_, live_P_);
}

at::Tensor DeMo::global_parameters() const { return replica_.values_P; }
std::vector<std::pair<std::string, at::Tensor>> DeMo::state() {
  return {{"outer.momentum", momentum_P_}};
}
void DeMo::restore_global(const at::Tensor&) {}  // The live parameters are the global ones.

}  // namespace atl::sync
