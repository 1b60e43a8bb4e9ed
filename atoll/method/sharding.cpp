#include "atoll/method/sharding.h"

#include <algorithm>

namespace atl::method {
namespace {

constexpr double kFloat = sizeof(float);

}  // namespace

double moment_bytes(const TrainOptions& options) {
  return options.optimizer == "sgd" ? 0 : 2 * kFloat;
}

double leaders_share(double moment_bytes, bool has_all_gradients, int64_t num_processes) {
  const double whole = has_all_gradients ? 2 * kFloat : kFloat;
  const double owned = 2 * kFloat + moment_bytes;
  const double of_others = owned / static_cast<double>(num_processes - 1);
  // whole + (owned - whole) share = of_others (1 - share).
  return std::max(0.0, (of_others - whole) / (owned - whole + of_others));
}

bool spills_to_disk(const TrainOptions& options, int64_t num_processes) {
  return options.shard == "zero3" && num_processes > 1;
}

}  // namespace atl::method
