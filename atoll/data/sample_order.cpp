#include "atoll/data/sample_order.h"

#include <numeric>

#include "atoll/base/check.h"

namespace atl::data {

std::vector<uint32_t> shuffled_range(Pcg64::Uint128 seed, int64_t count) {
  ATOLL_CHECK(count >= 0 && count < (int64_t{1} << 32));
  std::vector<uint32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0U);
  Pcg64 generator(seed);
  shuffle(generator, values);
  return values;
}

std::vector<uint32_t> sample_order(uint64_t seed, int64_t pass, int64_t num_rows) {
  ATOLL_CHECK(pass >= 0);
  const Pcg64::Uint128 epoch = static_cast<Pcg64::Uint128>(pass) + 1;
  return shuffled_range(static_cast<Pcg64::Uint128>(seed) + epoch, num_rows);
}

}  // namespace atl::data
