#include "atoll/base/random.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "atoll/base/hash.h"

namespace atl {
namespace {
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix(mix(mix(seed + kGolden) ^ (stream + 2 * kGolden)) ^ (index + 3 * kGolden));
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
