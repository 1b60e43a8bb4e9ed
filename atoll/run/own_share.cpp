#include "atoll/run/own_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace atl::run {

void take_own_share(method::TrainOptions& train, const ProcessPlace& place) {
  if (train.threads == 0) {
    const int64_t share = std::thread::hardware_concurrency() / place.local_size;
    train.threads = place.num_cpus > 0 ? place.num_cpus : std::max<int64_t>(1, share);
  }
  if (train.device == "cuda") train.device = fmt::format("cuda:{}", place.local_rank);
}

}  // namespace atl::run
