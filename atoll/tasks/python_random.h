#pragma once
// Python's random.Random, bit for bit: lm-evaluation-harness draws its examples and its bootstrap
// samples from it. Pure computation; a generator belongs to one thread.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/base/random.h"

namespace atl::tasks {

class PythonRandom {
 public:
  /// random.Random(seed).
  explicit PythonRandom(uint32_t seed);
  /// random(): uniform in [0, 1), 53 bits.
  double uniform();
  /// randrange(n); 0 < n <= 2^32.
  uint64_t below(uint64_t n);
  /// The places that sample(population, count) takes; count <= population.
  std::vector<size_t> sample(size_t population, size_t count);

 private:
  MersenneTwister twister_;
};

}  // namespace atl::tasks
