#pragma once
// Several sources of rows by weight, as GPT-NeoX blends data sets: row i of the blend comes from
// the source that lags farthest behind its weight w: the largest w max(i, 1) - (rows taken from
// it), of equal ones the first. After n rows each source has given n w of them, but for less than
// one or so.
//
// A value: a copy goes on from where the original was. The same bits on every machine.
#include <cstdint>
#include <span>
#include <vector>

namespace atl::data {

/// Weights divided by their sum, in NeoX's rounding. Throws UsageError unless there are 1 to 254,
/// all positive and finite.
std::vector<double> shares_of(std::span<const double> weights);

class Blend {
 public:
  struct Row {
    size_t source = 0;
    int64_t number = 0;  // How many rows that source has given before.
  };

  explicit Blend(std::span<const double> weights);
  Row next();
  /// Rows given so far.
  int64_t position() const { return position_; }

 private:
  std::vector<double> shares_;
  std::vector<int64_t> taken_;
  int64_t position_ = 0;
};

}  // namespace atl::data
