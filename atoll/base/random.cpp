#include "atoll/base/random.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "atoll/base/hash.h"
#include "atoll/base/mix.h"

namespace atl {

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix(mix(mix(seed + kMixStep) ^ (stream + 2 * kMixStep)) ^ (index + 3 * kMixStep));
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1.0p-53;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const double u = 1.0 - random_uniform(seed, stream, 2 * index);  // In (0, 1]: the log is finite.
  const double v = random_uniform(seed, stream, 2 * index + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t random_stream(const std::string& name) { return xxh3(name.data(), name.size()); }

uint64_t random_id() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string random_name() { return fmt::format("{:016x}", random_id()); }

}  // namespace atl
