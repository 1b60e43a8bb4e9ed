#pragma once
// The discrete cosine transform of DeMo: matrices in tiles of up to 64 x 64, vectors in pieces of
// up to 64. LibTorch-free; plain FP32 sums in a fixed order of factors that no libm has rounded, so
// the same bits everywhere.
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::method {

/// The (N, N) matrix of the DCT-II below: row k holds what c_k takes of each x_n. Nearest floats,
/// for want of less than a billionth of their spacing: the same on every machine.
std::vector<float> dct_basis(int64_t size);

/// The orthonormal DCT-II of a flat parameter buffer, tile by tile:
///   c_k = sqrt((k = 0 ? 1 : 2) / N) sum_n x_n cos(pi (n + 1/2) k / N)
/// along rows and columns. A side is the largest divisor of the dimension up to kSide. The result
/// holds one tile behind the other, so that neighbouring coefficients belong together.
class TiledDct {
 public:
  static constexpr int64_t kSide = 64;

  explicit TiledDct(std::span<const weights::ParameterSpec> specs);

  /// Both of the buffer's length, and distinct.
  void forward(std::span<const float> values_P, std::span<float> coefficients_P) const;
  /// The inverse, which is the transpose.
  void inverse(std::span<const float> coefficients_P, std::span<float> values_P) const;

 private:
  struct Basis {
    std::vector<float> rows;        // dct_basis(N)
    std::vector<float> transposed;  // The inverse.
  };
  struct Matrix {
    int64_t offset = 0;
    int64_t rows = 0;  // 1 for a vector.
    int64_t columns = 0;
    int64_t tile_rows = 0;
    int64_t tile_columns = 0;
  };
  /// Calls use(matrix, first element of the tile in the values, in the coefficients).
  template <typename Use>
  void for_each_tile(Use use) const;

  std::vector<Matrix> matrices_;
  std::map<int64_t, Basis> basis_;  // By N.
};

}  // namespace atl::method
