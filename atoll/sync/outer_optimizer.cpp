#include "atoll/sync/outer_optimizer.h"

#include "atoll/base/check.h"

namespace atl::sync {

void OuterOptimizer::step(std::span<const float> delta_P, std::span<const float> theta_P,
                          std::span<const float> buf_P, std::span<float> new_theta_P,
                          std::span<float> new_buf_P) const {
  const size_t size = delta_P.size();
  ATOLL_CHECK(theta_P.size() == size && buf_P.size() == size && new_theta_P.size() == size &&
              new_buf_P.size() == size);
  for (size_t i = 0; i < size; ++i) {
    const float buf = momentum * buf_P[i] + delta_P[i];
    const float direction = nesterov ? delta_P[i] + momentum * buf : buf;
    new_buf_P[i] = buf;
    new_theta_P[i] = theta_P[i] - lr * direction;
  }
}

}  // namespace atl::sync
