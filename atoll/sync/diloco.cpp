#include "atoll/sync/diloco.h"

#include <ATen/ops/sub.h>

#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

DiLoCo::DiLoCo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
               const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      sign_pruning_(options.sign_pruning),
      dropout_(options.outer_dropout),
      outer_(method::make_outer_optimizer(options)),
      now_(outer_, [this] { return lasting(replica_.values_P.numel(), outer_device()); }),
      next_(outer_, [this] { return lasting(replica_.values_P.numel(), outer_device()); }),
      sends_from_host_(sign_pruning_ > 0 || options.outer_mean == "radial") {
  now_.theta_P.copy_(replica_.values_P);
  place_origin();
  int64_t num_values = replica_.values_P.numel();
  if (options.outer_mean == "radial") {
    radial_.emplace(replica_.specs);
    num_values = static_cast<int64_t>(radial_->num_values());
    mean_delta_P_ = lasting(replica_.values_P.numel());
  }
  values_PG_ = lasting(num_values, origin_P_.device());
}

void DiLoCo::launch(const OwnRound& own) {
  write_outer_gradient();
  const int64_t tokens = weight(own, values_PG_, tokens_of(own));
  begin(
      own, values_PG_,
      {.weight = is_dropped(own.round) ? 0 : tokens,
       .prepare = [this, number = own.number](std::span<const float> mean, std::span<const float>) {
         return prepare(number, mean);
       }});
}

bool DiLoCo::is_dropped(int64_t round) const {
  return dropout_ > 0 && method::is_dropped(dropout_, replica_.seed, round, replica_.rank);
}

void DiLoCo::take(const OwnRound& own, Fate fate) {
  adopt(own.round);
  const bool keeps = fate == Fate::kLate || fate == Fate::kOvertaken;
  if (keeps) {
    follow(0, replica_.values_P.numel(), now_.theta_P, next_.theta_P);
  } else if (!is_dropped(own.round)) {
    replica_.values_P.copy_(origin_P_);
  }
  if (fate == Fate::kOvertaken) replica_.values_P.add_(values_PG_);
}

void DiLoCo::adopt(int64_t round) {
  publish(0, round, [&] { std::swap(now_, next_); });
  place_origin();
}

Digest DiLoCo::absorb(const collective::Commit& commit, int64_t number,
                      std::span<const float> mean_PG) {
  const Digest digest = prepare(number, mean_PG);
  adopt(commit.round);
  follow(0, replica_.values_P.numel(), now_.theta_P, next_.theta_P);
  return digest;
}

std::vector<std::vector<at::Tensor>> DiLoCo::state_of(int64_t /*fragment*/) const {
  return now_.tensors();
}

void DiLoCo::do_join() {
  place_origin();
  replica_.values_P.copy_(origin_P_);
}

void DiLoCo::place_origin() {
  if (sends_from_host_) {
    origin_P_ = now_.theta_P;
  } else {
    bring(now_.theta_P, origin_P_);
  }
}

void DiLoCo::write_outer_gradient() {
  // It points from where this replica is back to where all replicas started.
  const int64_t num_parameters = replica_.values_P.numel();
  at::Tensor delta_P = values_PG_.slice(0, 0, num_parameters);
  at::sub_out(delta_P, origin_P_, replica_.values_P.to(delta_P.device()));
  if (sign_pruning_ > 0) method::prune_neurons(replica_.specs, sign_pruning_, span_of(delta_P));
  if (radial_) radial_->split(span_of(values_PG_));
}

Digest DiLoCo::prepare(int64_t number, std::span<const float> mean_PG) {
  std::span<const float> mean_delta = mean_PG;
  if (radial_) {
    radial_->join(mean_PG, span_of(mean_delta_P_));
    mean_delta = span_of(mean_delta_P_);
  }
  now_.step(outer_, number, mean_delta, next_);
  return next_.digest();
}

at::Tensor DiLoCo::global_parameters() const { return now_.theta_P; }

std::vector<std::pair<std::string, at::Tensor>> DiLoCo::state() { return now_.buffers(); }

void DiLoCo::restore_global(const at::Tensor& global_P) {
  now_.theta_P.copy_(global_P);
  place_origin();
}

}  // namespace atl::sync
