#pragma once
// The fewest guesses that are nearly as good as the best number of them. Pure.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace atl::decoding {

/// The smallest count, from 0 to `most`, whose rate(count) is within a fiftieth of the highest.
template <typename Rate>
int64_t fewest_nearly_best(int64_t most, const Rate& rate) {
  constexpr double kNearly = 0.98;
  std::vector<double> rates;
  for (int64_t count = 0; count <= std::max<int64_t>(most, 0); ++count) {
    rates.push_back(rate(count));
  }
  const double enough = kNearly * *std::ranges::max_element(rates);
  return std::ranges::find_if(rates, [&](double each) { return each >= enough; }) - rates.begin();
}

}  // namespace atl::decoding
