#include "atoll/sync/data_parallel.h"

#include <algorithm>

#include "atoll/sync/host.h"

namespace atl::sync {

DataParallel::DataParallel(const SyncOptions& options, Replica replica,
                           collective::Averager& averager, const Clock& clock)
    : Strategy(options, std::move(replica), averager, clock),
      mean_P_(host_buffer(replica_.values_P)),
      live_P_(host_buffer(replica_.values_P)) {}

Result<void> DataParallel::do_reduce_gradients(int64_t step) {
  begin(replica_.gradients_P,
        {.round = step - 1,
         .step = step,
         .weight = can_send(replica_.gradients_P) ? replica_.tokens_per_step : 0,
         .prepare = [this](std::span<const float> mean, std::span<const float>) {
           std::ranges::copy(mean, span_of(mean_P_).begin());
           live_P_.copy_(replica_.values_P);
           return step_digest(mean_P_, live_P_);
         }});
  if (auto done = wait(step - 1); !done) return done;
  replica_.gradients_P.copy_(mean_P_);
  return {};
}

bool DataParallel::syncs_after(int64_t) const { return true; }
at::Tensor DataParallel::global_parameters() const { return replica_.values_P; }
void DataParallel::restore_global(const at::Tensor&) {}  // The live parameters are the global ones.

}  // namespace atl::sync
