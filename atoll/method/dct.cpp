#include "atoll/method/dct.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace atl::method {
namespace {

using Tile = std::array<float, static_cast<size_t>(TiledDct::kSide* TiledDct::kSide)>;

int64_t side_of(int64_t dimension) {
  int64_t side = std::min(dimension, TiledDct::kSide);
  while (dimension % side != 0) --side;
  return side;
}

/// cos(x) or sin(x) for 0 <= x <= pi / 4: Taylor's terms up to x^17, of which the rest is below
/// 2^-55. libm rounds differently from one machine to the next; sums and products do not.
double cosine_near_zero(double x) {
  double sum = 1;
  for (int i = 16; i > 0; i -= 2) sum = 1 - sum * (x * x / (i * (i - 1)));
  return sum;
}
double sine_near_zero(double x) {
  double sum = 1;
  for (int i = 16; i > 0; i -= 2) sum = 1 - sum * (x * x / (i * (i + 1)));
  return x * sum;
}

/// cos(pi / 2 * numerator / denominator), the numerator not negative. Whole numbers are brought
/// into the first eighth of the circle, so nothing is lost there.
double cosine(int64_t numerator, int64_t denominator) {
  int64_t n = numerator % (4 * denominator);
  n = std::min(n, 4 * denominator - n);
  const bool is_negative = n > denominator;
  if (is_negative) n = 2 * denominator - n;
  const bool is_far = 2 * n > denominator;
  if (is_far) n = denominator - n;
  const double x = std::numbers::pi / 2 * static_cast<double>(n) / static_cast<double>(denominator);
  const double magnitude = is_far ? sine_near_zero(x) : cosine_near_zero(x);
  return is_negative ? -magnitude : magnitude;
}

std::vector<float> transposed(const std::vector<float>& matrix, int64_t size) {
  std::vector<float> out(matrix.size());
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      out[static_cast<size_t>(j * size + i)] = matrix[static_cast<size_t>(i * size + j)];
    }
  }
  return out;
}

/// out (n, m) = a (n, k) b (k, m). The inner loop runs along a row: it vectorises, and the order of
/// each sum is that of k.
void multiply(const float* a, const float* b, float* out, int64_t n, int64_t k, int64_t m) {
  for (int64_t i = 0; i < n; ++i) {
    float* const row = out + i * m;
    for (int64_t j = 0; j < m; ++j) row[j] = 0;
    for (int64_t l = 0; l < k; ++l) {
      const float factor = a[i * k + l];
      for (int64_t j = 0; j < m; ++j) row[j] += factor * b[l * m + j];
    }
  }
}

}  // namespace

std::vector<float> dct_basis(int64_t size) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(size * size));
  for (int64_t k = 0; k < size; ++k) {
    const double scale = std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(size));
    for (int64_t n = 0; n < size; ++n) {
      out.push_back(static_cast<float>(scale * cosine((2 * n + 1) * k, size)));
    }
  }
  return out;
}

TiledDct::TiledDct(std::span<const weights::ParameterSpec> specs) {
  for (const weights::ParameterSpec& spec : specs) {
    const int64_t columns = spec.shape.back();
    const int64_t rows = spec.size / columns;
    matrices_.push_back({.offset = spec.offset,
                         .rows = rows,
                         .columns = columns,
                         .tile_rows = side_of(rows),
                         .tile_columns = side_of(columns)});
    for (const int64_t side : {side_of(rows), side_of(columns)}) {
      if (basis_.contains(side)) continue;
      std::vector<float> basis = dct_basis(side);
      std::vector<float> inverse = transposed(basis, side);
      basis_[side] = {.rows = std::move(basis), .transposed = std::move(inverse)};
    }
  }
}

template <typename Use>
void TiledDct::for_each_tile(Use use) const {
  for (const Matrix& matrix : matrices_) {
    int64_t packed = matrix.offset;
    for (int64_t row = 0; row < matrix.rows; row += matrix.tile_rows) {
      for (int64_t column = 0; column < matrix.columns; column += matrix.tile_columns) {
        use(matrix, matrix.offset + row * matrix.columns + column, packed);
        packed += matrix.tile_rows * matrix.tile_columns;
      }
    }
  }
}

/// C = B_rows X B_columns^T
void TiledDct::forward(std::span<const float> values_P, std::span<float> coefficients_P) const {
  Tile tile;
  Tile half;
  for_each_tile([&](const Matrix& m, int64_t from, int64_t to) {
    for (int64_t i = 0; i < m.tile_rows; ++i) {
      std::copy_n(values_P.data() + from + i * m.columns, m.tile_columns,
                  tile.data() + i * m.tile_columns);
    }
    multiply(tile.data(), basis_.at(m.tile_columns).transposed.data(), half.data(), m.tile_rows,
             m.tile_columns, m.tile_columns);
    multiply(basis_.at(m.tile_rows).rows.data(), half.data(), coefficients_P.data() + to,
             m.tile_rows, m.tile_rows, m.tile_columns);
  });
}

/// X = B_rows^T C B_columns
void TiledDct::inverse(std::span<const float> coefficients_P, std::span<float> values_P) const {
  Tile tile;
  Tile half;
  for_each_tile([&](const Matrix& m, int64_t to, int64_t from) {
    multiply(coefficients_P.data() + from, basis_.at(m.tile_columns).rows.data(), half.data(),
             m.tile_rows, m.tile_columns, m.tile_columns);
    multiply(basis_.at(m.tile_rows).transposed.data(), half.data(), tile.data(), m.tile_rows,
             m.tile_rows, m.tile_columns);
    for (int64_t i = 0; i < m.tile_rows; ++i) {
      std::copy_n(tile.data() + i * m.tile_columns, m.tile_columns,
                  values_P.data() + to + i * m.columns);
    }
  });
}

}  // namespace atl::method
