#include "atoll/model/matmul.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>

#include "atoll/model/composite.h"
#include "atoll/model/product_library.h"

namespace atl::model {
namespace {

using enum Library;
using Multiply = std::function<void(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                    bool accumulates)>;

/// How factors lie in memory.
enum class Lie { kRows, kColumns, kSparseRows, kSparseColumns, kNeither };

at::Tensor factor(int64_t rows, int64_t columns, Lie lie, at::ScalarType type) {
  const auto of = [&](int64_t m, int64_t n) { return at::randn({m, n}).to(type); };
  switch (lie) {
    case Lie::kColumns:
      return of(columns, rows).t();
    case Lie::kSparseRows:
      return of(rows, columns + 5).narrow(1, 2, columns);
    case Lie::kSparseColumns:
      return of(columns, rows + 5).narrow(1, 2, rows).t();
    case Lie::kNeither:
      return of(2 * rows, 3 * columns).slice(0, 0, 2 * rows, 2).slice(1, 0, 3 * columns, 3);
    default:
      return of(rows, columns);
  }
}

struct Types {
  at::ScalarType in;
  at::ScalarType out;
};
constexpr Types kFp32{at::kFloat, at::kFloat};
constexpr Types kBf16{at::kBFloat16, at::kBFloat16};
constexpr Types kBf16ToFp32{at::kBFloat16, at::kFloat};

/// Against the product of the same values in FP64, whose own errors do not count. `rounds`: once to
/// BF16, before what was there is added.
void expect_exact(const Multiply& multiply, const Types& types, bool rounds, Lie a_lies, Lie b_lies,
                  int64_t m, int64_t k, int64_t n, bool accumulates) {
  const at::Tensor a = factor(m, k, a_lies, types.in);
  const at::Tensor b = factor(k, n, b_lies, types.in);
  const at::Tensor whole = at::randn({m + 7, n}).to(types.out);
  const at::Tensor out = whole.narrow(0, 3, m);
  const at::Tensor before = whole.clone();
  const at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  multiply(out, a, b, accumulates);
  at::Tensor made = out.to(at::kDouble);
  if (accumulates) made = made.sub(before.narrow(0, 3, m).to(at::kDouble));
  // A sum of k products of deviates is about sqrt(k), and is rounded k times by half of 2^-24 of
  // that, this way and that: k 2^-25. Of all results none is eight times as far off.
  const double lost = std::ldexp(static_cast<double>(k), -22) + 1e-6;
  EXPECT_TRUE(at::allclose(made, expected, rounds ? 1.0 / 256 : 1e-5, lost))
      << m << ' ' << k << ' ' << n << ", lie " << static_cast<int>(a_lies)
      << static_cast<int>(b_lies) << ", adds " << accumulates << ", off by "
      << made.sub(expected).abs().max().item<double>();
  EXPECT_TRUE(whole.narrow(0, 0, 3).equal(before.narrow(0, 0, 3)));
  EXPECT_TRUE(whole.narrow(0, m + 3, 4).equal(before.narrow(0, m + 3, 4)));
}

constexpr std::array kLies{Lie::kRows, Lie::kColumns, Lie::kSparseRows, Lie::kSparseColumns,
                           Lie::kNeither};

/// Small and large, odd, and as the model has them: weights and gradients come transposed, outputs
/// are slices of something larger.
void expect_exact_everywhere(const Multiply& multiply, const Types& types, bool rounds) {
  for (const auto& [m, k, n] :
       {std::tuple{1, 64, 300}, {65, 33, 17}, {1, 1, 1}, {30, 40, 1}, {257, 700, 130}}) {
    for (const Lie a_lies : kLies) {
      for (const Lie b_lies : kLies) {
        const bool is_odd = std::max(a_lies, b_lies) > Lie::kColumns;
        if (is_odd && m > 100) continue;  // oneDNN prepares for each anew, which takes longest.
        if (is_odd && a_lies != b_lies && std::min(a_lies, b_lies) > Lie::kRows) continue;
        for (const bool accumulates : {false, true}) {
          if (accumulates && types.out == at::kBFloat16) continue;
          expect_exact(multiply, types, rounds, a_lies, b_lies, m, k, n, accumulates);
        }
      }
    }
  }
}

Multiply by(Library library) {
  return [library](const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                   bool accumulates) { multiply_by(library, out, a, b, accumulates); };
}

TEST(MatmulTest, EqualsTheProductInDoublePrecision) {
  expect_exact_everywhere(matmul, kFp32, /*rounds=*/false);
  expect_exact_everywhere(matmul, kBf16, /*rounds=*/true);
  const bool rounds = libraries_for(ProductTypes::kBf16ToFp32).front() == kOneDnn;
  expect_exact_everywhere(matmul, kBf16ToFp32, rounds);
}

TEST(MatmulTest, EachLibraryIsExact) {
  for (const Library library : libraries_for(ProductTypes::kFp32)) {
    SCOPED_TRACE(name_of(library));
    expect_exact_everywhere(by(library), kFp32, /*rounds=*/false);
  }
  for (const Library library : libraries_for(ProductTypes::kBf16)) {
    SCOPED_TRACE(name_of(library));
    expect_exact_everywhere(by(library), kBf16, /*rounds=*/true);
  }
  for (const Library library : libraries_for(ProductTypes::kBf16ToFp32)) {
    SCOPED_TRACE(name_of(library));
    expect_exact_everywhere(by(library), kBf16ToFp32, library == kOneDnn);
  }
}

/// What others than the libraries do: LibTorch's own way, as on devices and for FP64.
TEST(MatmulTest, LibTorchAloneIsExact) {
  expect_exact_everywhere(composite::matmul, kFp32, /*rounds=*/false);
  expect_exact_everywhere(composite::matmul, kBf16ToFp32, /*rounds=*/false);
  expect_exact_everywhere(matmul, {at::kDouble, at::kDouble}, /*rounds=*/false);
}

/// Results whose columns are dense, and rows that lie apart in something wider.
TEST(MatmulTest, WritesTransposedAndNarrowedResults) {
  for (const Types& types : {kFp32, kBf16, kBf16ToFp32}) {
    for (const auto& [m, k, n] : {std::tuple{20, 30, 40}, {300, 200, 150}}) {
      const at::Tensor a = factor(m, k, Lie::kRows, types.in);
      const at::Tensor b = factor(k, n, Lie::kColumns, types.in);
      const at::Tensor plain = at::full({m, n}, 0, types.out);
      matmul(plain, a, b);
      const at::Tensor transposed = at::full({n, m}, 7, types.out).t();
      matmul(transposed, a, b);
      EXPECT_TRUE(at::allclose(transposed.to(at::kDouble), plain.to(at::kDouble), 1.0 / 128, 1e-4));
      const at::Tensor whole = at::full({m, n + 9}, 7, types.out);
      matmul(whole.narrow(1, 4, n), a, b);
      EXPECT_TRUE(at::allclose(whole.narrow(1, 4, n).to(at::kDouble), plain.to(at::kDouble),
                               1.0 / 128, 1e-4));
      EXPECT_TRUE(whole.narrow(1, 0, 4).eq(7).all().item<bool>());
      EXPECT_TRUE(whole.narrow(1, n + 4, 5).eq(7).all().item<bool>());
    }
  }
}

TEST(MatmulTest, NothingTimesNothingIsZero) {
  for (const Types& types : {kFp32, kBf16, kBf16ToFp32}) {
    const at::Tensor out = at::full({3, 5}, 7, types.out);
    matmul(out, factor(3, 0, Lie::kRows, types.in), factor(0, 5, Lie::kRows, types.in));
    EXPECT_TRUE(out.eq(0).all().item<bool>());
    const at::Tensor none = at::full({0, 5}, 7, types.out);
    matmul(none, factor(0, 4, Lie::kRows, types.in), factor(4, 5, Lie::kRows, types.in));
  }
}

TEST(MatmulTest, TheCpusKindSuggestsTheUsualOne) {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd") && __builtin_cpu_supports("x86-64-v4")) {
    EXPECT_EQ(libraries_for(ProductTypes::kFp32).front(), kOneDnn)
        << "products are half as fast as the docs say";
  } else {
    EXPECT_EQ(libraries_for(ProductTypes::kFp32).front(), kMkl);
  }
  const bool has_bf16 = __builtin_cpu_supports("avx512bf16");
  EXPECT_EQ(libraries_for(ProductTypes::kBf16).front(), has_bf16 ? kOneDnn : kWidened);
  if (has_bf16 && __builtin_cpu_is("intel")) {
    EXPECT_EQ(libraries_for(ProductTypes::kBf16ToFp32).front(), kMkl);
  }
#else
  GTEST_SKIP() << "for x86 only";
#endif
}

TEST(MatmulTest, GivesTheSameBitsEachTime) {
  for (const Types& types : {kFp32, kBf16, kBf16ToFp32}) {
    const at::Tensor a = factor(600, 300, Lie::kRows, types.in);
    const at::Tensor b = factor(300, 500, Lie::kColumns, types.in);
    const at::Tensor first = at::randn({600, 500}).to(types.out);
    matmul(first, a, b);
    for (int i = 0; i < 5; ++i) {
      const at::Tensor again = at::randn({600, 500}).to(types.out);
      matmul(again, a, b);
      EXPECT_TRUE(again.equal(first));
    }
  }
}

}  // namespace
}  // namespace atl::model
