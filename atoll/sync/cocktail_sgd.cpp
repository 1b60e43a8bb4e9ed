#include "atoll/sync/cocktail_sgd.h"

#include <utility>

#include "atoll/sync/host.h"

namespace atl::sync {

CocktailSgd::CocktailSgd(const method::SyncOptions& options, Replica replica,
                         collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      exact_(codec::make_codec("fp32")),
      reference_P_(host_buffer(replica_.values_P)),
      residual_P_(host_buffer(replica_.values_P)),
      difference_P_(host_buffer(replica_.values_P)),
      new_reference_P_(host_buffer(replica_.values_P)),
      new_residual_P_(host_buffer(replica_.values_P)),
      shift_P_(host_buffer(replica_.values_P)) {
  reference_P_.copy_(replica_.values_P);
}

/// The run's last round travels uncompressed.
void CocktailSgd::launch(const OwnRound& own) {
  const codec::Codec* codec = lands(own.step) ? exact_.get() : nullptr;
  difference_P_.copy_(replica_.values_P).sub_(reference_P_);
  const int64_t tokens = weight(own, difference_P_, replica_.tokens_per_step);
  if (tokens == 0 && !can_send(difference_P_)) {  // An overflow: begin again where all agree.
    note_change();
    replica_.values_P.copy_(reference_P_);
    difference_P_.zero_();
  }
  begin(own, difference_P_,
        {.weight = tokens,
         .codec = codec,
         .mean_residual = span_of(residual_P_),
         .new_mean_residual = span_of(new_residual_P_),
         .needs_own = true,
         .prepare = [this, round = own.round](std::span<const float> mean,
                                              std::span<const float> sent) {
           return prepare(round, mean, sent);
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

void CocktailSgd::take(const OwnRound& own, Fate fate) {
  std::swap(reference_P_, new_reference_P_);
  std::swap(residual_P_, new_residual_P_);
  if (fate == Fate::kLeftOut) {  // Begin again where all agree.
    replica_.values_P.copy_(reference_P_);
  } else {
    replica_.values_P.add_(shift_P_.to(replica_.values_P.device()));
  }
  // Equal but for rounding: now to the bit.
  if (lands(own.step)) replica_.values_P.copy_(reference_P_);
}

at::Tensor CocktailSgd::global_parameters() const { return reference_P_; }

std::vector<std::pair<std::string, at::Tensor>> CocktailSgd::state() {
  return {{"outer.residual", residual_P_}};
}

void CocktailSgd::restore_global(const at::Tensor& global_P) { reference_P_.copy_(global_P); }

}  // namespace atl::sync
