#include "atoll/sync/cocktail_sgd.h"

#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

CocktailSgd::CocktailSgd(const method::SyncOptions& options, Replica replica,
                         collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      delay_(options.fragment_sync_delay),
      exact_(codec::make_codec("fp32")),
      reference_P_(host_buffer(replica_.values_P)),
      residual_P_(host_buffer(replica_.values_P)),
      difference_P_(host_buffer(replica_.values_P)),
      new_reference_P_(host_buffer(replica_.values_P)),
      new_residual_P_(host_buffer(replica_.values_P)),
      shift_P_(host_buffer(replica_.values_P)) {
  reference_P_.copy_(replica_.values_P);
}

bool CocktailSgd::syncs_after(int64_t step) const { return step == replica_.last_step; }

/// Round step - 1 is the one sent after `step`; the run's last travels uncompressed.
Result<void> CocktailSgd::do_after_step(int64_t step) {
  const bool last = step == replica_.last_step;
  if (delay_ > 0 && step > 1) {
    if (auto done = apply(step - 2); !done) return done;
  }
  send(step - 1, step, last ? exact_.get() : nullptr);
  if (delay_ == 0 || last) {
    if (auto done = apply(step - 1); !done) return done;
  }
  if (last) replica_.values_P.copy_(reference_P_);  // Equal but for rounding: now to the bit.
  return {};
}

void CocktailSgd::send(int64_t round, int64_t step, const codec::Codec* codec) {
  difference_P_.copy_(replica_.values_P).sub_(reference_P_);
  const int64_t tokens = weight(round, difference_P_, replica_.tokens_per_step);
  if (tokens == 0 && !can_send(difference_P_)) {  // An overflow: begin again where all agree.
    replica_.values_P.copy_(reference_P_);
    difference_P_.zero_();
  }
  begin(difference_P_,
        {.round = round,
         .step = step,
         .weight = tokens,
         .codec = codec,
         .mean_residual = span_of(residual_P_),
         .new_mean_residual = span_of(new_residual_P_),
         .needs_own = true,
         .prepare = [this, round](std::span<const float> mean, std::span<const float> own) {
           return prepare(round, mean, own);
         }});
}

Digest CocktailSgd::prepare(int64_t round, std::span<const float> mean_P,
                            std::span<const float> own_P) {
  const std::span<const float> reference = span_of(reference_P_);
  const std::span<float> new_reference = span_of(new_reference_P_);
  const std::span<float> shift = span_of(shift_P_);
  for (size_t i = 0; i < mean_P.size(); ++i) {
    new_reference[i] = reference[i] + mean_P[i];
    shift[i] = mean_P[i] - own_P[i];
  }
  return (round + 1) % kFullDigestEvery == 0 ? tree_digest(bytes_of(new_reference_P_))
                                             : quick_digest(bytes_of(new_reference_P_));
}

Result<void> CocktailSgd::apply(int64_t round) {
  const auto fate = wait(round);
  if (!fate) return tl::unexpected(fate.error());
  std::swap(reference_P_, new_reference_P_);
  std::swap(residual_P_, new_residual_P_);
  if (*fate == Fate::kLeftOut) {  // Begin again where all agree.
    replica_.values_P.copy_(reference_P_);
  } else {
    replica_.values_P.add_(shift_P_.to(replica_.values_P.device()));
  }
  return {};
}

at::Tensor CocktailSgd::global_parameters() const { return reference_P_; }

std::vector<std::pair<std::string, at::Tensor>> CocktailSgd::state() {
  return {{"outer.residual", residual_P_}};
}

void CocktailSgd::restore_global(const at::Tensor& global_P) { reference_P_.copy_(global_P); }

void CocktailSgd::do_resume(int64_t step) {
  // A checkpoint follows after_step(): the round of this very step is in flight, and x - g is still
  // what was sent.
  if (delay_ > 0 && step > 0 && step < replica_.last_step) send(step - 1, step);
}

}  // namespace atl::sync
