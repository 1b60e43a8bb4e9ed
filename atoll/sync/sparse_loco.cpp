#include "atoll/sync/sparse_loco.h"

#include <algorithm>
#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

SparseLoCo::SparseLoCo(const method::SyncOptions& options, Replica replica,
                       collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      lr_(static_cast<float>(method::outer_lr(options))),
      decay_(static_cast<float>(options.error_feedback_decay)),
      global_P_(lasting(replica_.values_P.numel())),
      residual_P_(lasting(replica_.values_P.numel())),
      corrected_P_(lasting(replica_.values_P.numel())),
      new_global_P_(lasting(replica_.values_P.numel())),
      new_residual_P_(lasting(replica_.values_P.numel())) {
  global_P_.copy_(replica_.values_P);
}

void SparseLoCo::launch(const OwnRound& own) {
  corrected_P_.copy_(replica_.values_P);
  const std::span<float> corrected = span_of(corrected_P_);
  const std::span<const float> global = span_of(global_P_);
  const std::span<const float> residual = span_of(residual_P_);
  for (size_t i = 0; i < corrected.size(); ++i) {
    corrected[i] = decay_ * residual[i] + (global[i] - corrected[i]);
  }
  const int64_t tokens = weight(own, corrected_P_, tokens_of(own));
  // What cannot be used is not kept for later either.
  if (tokens == 0) std::ranges::copy(residual, corrected.begin());
  begin(own, corrected_P_,
        {.weight = tokens,
         .needs_own = true,
         .prepare = [this](std::span<const float> mean, std::span<const float> sent) {
           return prepare(mean, sent);
         }});
}

void SparseLoCo::take(const OwnRound& own, Fate fate) {
  adopt(own.round);
  const bool is_overtaken = fate == Fate::kOvertaken;
  if (fate == Fate::kLate || is_overtaken) {
    follow(0, replica_.values_P.numel(), global_P_, new_global_P_);
  } else {
    replica_.values_P.copy_(global_P_);
  }
  // From its own snapshot: this replica's outer gradient is in the mean.
  if (is_overtaken && own.num_steps > 0) {
    const at::Tensor delta_P = corrected_P_.sub_(residual_P_, decay_);
    replica_.values_P.add_(delta_P.to(replica_.values_P.device()));
  }
  // What was left out is not kept for later.
  if (fate != Fate::kLate && fate != Fate::kLeftOut) std::swap(residual_P_, new_residual_P_);
}

void SparseLoCo::adopt(int64_t round) {
  publish(0, round, [&] { std::swap(global_P_, new_global_P_); });
}

Digest SparseLoCo::prepare(std::span<const float> mean_P, std::span<const float> own_P) {
  const std::span<const float> corrected = span_of(corrected_P_);
  const std::span<float> new_residual = span_of(new_residual_P_);
  for (size_t i = 0; i < mean_P.size(); ++i) new_residual[i] = corrected[i] - own_P[i];
  return step_global(mean_P);
}

Digest SparseLoCo::step_global(std::span<const float> mean_P) {
  const std::span<const float> global = span_of(global_P_);
  const std::span<float> new_global = span_of(new_global_P_);
  for (size_t i = 0; i < mean_P.size(); ++i) new_global[i] = global[i] - lr_ * mean_P[i];
  return state_digest({{new_global_P_}});
}

Digest SparseLoCo::absorb(const collective::Commit& commit, int64_t /*number*/,
                          std::span<const float> mean_P) {
  const Digest digest = step_global(mean_P);
  adopt(commit.round);
  follow(0, replica_.values_P.numel(), global_P_, new_global_P_);
  return digest;
}

std::vector<std::vector<at::Tensor>> SparseLoCo::state_of(int64_t /*fragment*/) const {
  return {{global_P_}};
}

/// What was not sent before is about parameters that are no more.
void SparseLoCo::do_join() {
  replica_.values_P.copy_(global_P_);
  residual_P_.zero_();
}

at::Tensor SparseLoCo::global_parameters() const { return global_P_; }

std::vector<std::pair<std::string, at::Tensor>> SparseLoCo::state() {
  return {{"outer.residual", residual_P_}};
}

void SparseLoCo::restore_global(const at::Tensor& global_P) { global_P_.copy_(global_P); }

}  // namespace atl::sync
