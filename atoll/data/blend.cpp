#include "atoll/data/blend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "atoll/base/error.h"

namespace atl::data {
namespace {

/// numpy's sum of doubles: eight running sums from eight numbers on, halves above 128.
double pairwise_sum(std::span<const double> values) {
  if (values.size() < 8) return std::accumulate(values.begin(), values.end(), 0.0);
  if (values.size() > 128) {
    const size_t half = values.size() / 2 / 8 * 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  std::array<double, 8> r{};
  std::copy_n(values.begin(), 8, r.begin());
  size_t i = 8;
  for (; i + 8 <= values.size(); i += 8) {
    for (size_t k = 0; k < 8; ++k) r[k] += values[i + k];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

}  // namespace

std::vector<double> shares_of(std::span<const double> weights) {
  if (weights.empty() || weights.size() > 254) {
    throw UsageError(fmt::format("a blend has 1 to 254 stores, not {}", weights.size()));
  }
  double sum = 0;  // Python adds from left to right.
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(sum += weight)) {
      throw UsageError(fmt::format("a weight must be a positive number, not {}", weight));
    }
  }
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

Blend::Blend(std::span<const double> weights)
    : shares_(shares_of(weights)), taken_(weights.size()) {
  const double sum = pairwise_sum(shares_);  // NeoX divides a second time, in numpy.
  for (double& share : shares_) share /= sum;
}

Blend::Row Blend::next() {
  const double place = std::max(static_cast<double>(position_++), 1.0);
  size_t farthest = 0;
  double most = 0;
  for (size_t k = 0; k < shares_.size(); ++k) {
    const double lag = shares_[k] * place - static_cast<double>(taken_[k]);
    if (k > 0 && lag <= most) continue;  // Of equal ones the first.
    most = lag;
    farthest = k;
  }
  return {.source = farthest, .number = taken_[farthest]++};
}

}  // namespace atl::data
