#include "atoll/sync/eager_diloco.h"

#include <ATen/ops/sub.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/sync/host.h"

namespace atl::sync {

EagerDiLoCo::EagerDiLoCo(const method::SyncOptions& options, Replica replica,
                         collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      fresh_share_(options.method == "eager_diloco"
                       ? 1.0F / static_cast<float>(averager.num_members())
                       : 0.0F),
      outer_(method::make_outer_optimizer(options)),
      own_(outer_, [this] { return lasting(replica_.values_P.numel()); }),
      now_(outer_, [this] { return lasting(replica_.values_P.numel()); }),
      next_(outer_, [this] { return lasting(replica_.values_P.numel()); }) {
  ATOLL_CHECK(outer_.rule != method::OuterRule::kAdam, "the outer optimiser must be linear");
  for (at::Tensor* buffer : {&direction_P_, &mean_P_, &new_mean_P_, &mean_direction_P_}) {
    *buffer = lasting(replica_.values_P.numel());
  }
  own_.theta_P.copy_(replica_.values_P);
  place_origin();
  delta_P_ = lasting(origin_P_.numel(), origin_P_.device());
  if (uses_fresh()) old_delta_P_ = lasting(origin_P_.numel(), origin_P_.device());
  now_.theta_P.copy_(replica_.values_P);
}

void EagerDiLoCo::place_origin() {
  if (uses_fresh()) {
    origin_P_ = own_.theta_P;
  } else {
    bring(own_.theta_P, origin_P_);
  }
}

void EagerDiLoCo::blend(const at::Tensor& fresh_P, const at::Tensor& old_P,
                        const at::Tensor& direction_P) const {
  const std::span<const float> mean = span_of(mean_P_);
  const std::span<const float> fresh = span_of(fresh_P);
  const std::span<const float> old = span_of(old_P);
  const std::span<float> direction = span_of(direction_P);
  for (size_t i = 0; i < direction.size(); ++i) {
    direction[i] = mean[i] + fresh_share_ * (fresh[i] - old[i]);
  }
}

void EagerDiLoCo::launch(const OwnRound& own) {
  if (uses_fresh()) std::swap(delta_P_, old_delta_P_);
  at::sub_out(delta_P_, origin_P_, replica_.values_P.to(delta_P_.device()));
  if (!can_send(delta_P_)) {  // An overflow: as if the period had not been.
    delta_P_.zero_();
    abstain();
  }
  send(own);
  step_own(own.round);
}

void EagerDiLoCo::send(const OwnRound& own) {
  begin(own, delta_P_,
        {.weight = weight(own, delta_P_, tokens_of(own)),
         .prepare = [this, round = own.round](std::span<const float> mean, std::span<const float>) {
           return prepare(round, mean);
         }});
}

/// theta_m = OuterOpt(theta_m, D~_m), with the mean that has come. The live parameters follow.
void EagerDiLoCo::step_own(int64_t round) {
  if (uses_fresh()) {
    blend(delta_P_, old_delta_P_, direction_P_);
  } else {
    direction_P_.copy_(mean_P_);
  }
  own_.step(outer_, round + 1, span_of(direction_P_), own_);
  place_origin();
  note_change();
  replica_.values_P.copy_(origin_P_);
}

/// The mean of all D~_m has the same form as each of them; from it the mean of all theta_m.
Digest EagerDiLoCo::prepare(int64_t round, std::span<const float> mean_P) {
  std::ranges::copy(mean_P, span_of(new_mean_P_).begin());
  blend(new_mean_P_, mean_P_, mean_direction_P_);
  now_.step(outer_, round + 1, span_of(mean_direction_P_), next_);
  return next_.digest();
}

void EagerDiLoCo::take(const OwnRound& own, Fate /*fate*/) {
  std::swap(now_, next_);
  std::swap(mean_P_, new_mean_P_);
  if (own.step == replica_.pace.last_step) finish(own.round);
}

/// The last means have been used by a share only, or not at all: their rest is one more outer step.
void EagerDiLoCo::finish(int64_t round) {
  if (fresh_share_ < 1) {  // A replica that is alone has used it all.
    mean_P_.mul_(1 - fresh_share_);
    now_.step(outer_, round + 2, span_of(mean_P_), now_);
  }
  replica_.values_P.copy_(now_.theta_P);
}

at::Tensor EagerDiLoCo::global_parameters() const { return now_.theta_P; }

std::vector<std::pair<std::string, at::Tensor>> EagerDiLoCo::state() {
  auto tensors = now_.buffers();
  tensors.emplace_back("outer.mean", mean_P_);
  tensors.emplace_back("outer.in_flight", delta_P_);
  tensors.emplace_back("own.theta", own_.theta_P);
  for (const auto& [name, buffer_P] : own_.buffers()) tensors.emplace_back("own." + name, buffer_P);
  return tensors;
}

void EagerDiLoCo::restore_global(const at::Tensor& global_P) { now_.theta_P.copy_(global_P); }

void EagerDiLoCo::do_resume(const std::vector<OwnRound>& on_their_way) {
  place_origin();
  for (const OwnRound& own : on_their_way) send(own);
}

}  // namespace atl::sync
