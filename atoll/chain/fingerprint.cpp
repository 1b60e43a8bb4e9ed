#include "atoll/chain/fingerprint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "atoll/base/check.h"
#include "atoll/base/random.h"

namespace atl::chain {
namespace {

constexpr size_t kBits = 64;

double projection(std::span<const float> row_C, uint32_t seed) {
  double sum = 0;
  for (size_t begin = 0; begin < row_C.size(); begin += kBits) {
    const uint64_t signs = random_bits(seed, 0, begin / kBits);
    const auto part = row_C.subspan(begin, std::min(kBits, row_C.size() - begin));
    for (size_t i = 0; i < part.size(); ++i) sum += (signs >> i & 1) != 0 ? part[i] : -part[i];
  }
  return sum;
}

}  // namespace

Fingerprint fingerprint(std::span<const float> row_C, uint32_t seed) {
  return {.seed = seed, .value = static_cast<float>(projection(row_C, seed))};
}

double difference(std::span<const Fingerprint> said, std::span<const float> rows_TC) {
  if (said.empty()) return 0;
  ATOLL_CHECK(rows_TC.size() % said.size() == 0, "a row for each");
  const size_t width = rows_TC.size() / said.size();
  double sum = 0;
  for (size_t i = 0; i < said.size(); ++i) {
    const auto row_C = rows_TC.subspan(i * width, width);
    double square = 0;
    for (const float value : row_C) square += static_cast<double>(value) * value;
    const double error = said[i].value - fingerprint(row_C, said[i].seed).value;
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    if (error != 0) sum += error * error / square;  // Of a row of zeros: infinite.
  }
  return std::sqrt(sum / static_cast<double>(said.size()));
}

Witness::Witness() : secret_(random_id()) {}

std::vector<Fingerprint> Witness::see(std::span<const float> rows_TC, int64_t hidden_size) {
  const auto width = static_cast<size_t>(hidden_size);
  std::vector<Fingerprint> seen;
  seen.reserve(rows_TC.size() / width);
  for (size_t begin = 0; begin < rows_TC.size(); begin += width) {
    const auto seed = static_cast<uint32_t>(random_bits(secret_, 0, ++num_seen_));
    seen.push_back(fingerprint(rows_TC.subspan(begin, width), seed));
  }
  return seen;
}

}  // namespace atl::chain
