#pragma once
// How the processes of an island share its training state (train.shard). Pure.
#include <cstdint>

#include "atoll/method/train_options.h"

namespace atl::method {

/// Of a parameter's moments.
double moment_bytes(const TrainOptions& options);

/// Which share of the state process 0 owns with "zero3". It has all values whatever it owns (and
/// all gradients, where the method changes them), and so owns fewer: the largest process is as
/// small as can be. `num_processes`: over 1.
double leaders_share(double moment_bytes, bool has_all_gradients, int64_t num_processes);

/// Whether process 0 of so many has on the disk what no step needs: what the outer optimiser keeps
/// from round to round, and what a checkpoint is made of. Where memory is what the sharding is for.
bool spills_to_disk(const TrainOptions& options, int64_t num_processes);

}  // namespace atl::method
