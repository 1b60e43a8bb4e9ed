#include "atoll/model/matmul.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <tuple>

namespace atl::model {
namespace {

/// Small and large, and as the model has them: weights and gradients come transposed, outputs are
/// slices of something larger.
TEST(MatmulTest, EqualsTheProductInDoublePrecision) {
  for (const auto& [m, k, n] :
       {std::tuple{1, 64, 300}, {65, 33, 17}, {1024, 64, 257}, {257, 700, 130}}) {
    for (const bool a_is_transposed : {false, true}) {
      for (const bool b_is_transposed : {false, true}) {
        for (const bool accumulates : {false, true}) {
          const at::Tensor a = a_is_transposed ? at::randn({k, m}).t() : at::randn({m, k});
          const at::Tensor b = b_is_transposed ? at::randn({n, k}).t() : at::randn({k, n});
          const at::Tensor whole = at::randn({m + 7, n});
          const at::Tensor out = whole.narrow(0, 3, m);
          const at::Tensor before = whole.clone();
          at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
          if (accumulates) expected = expected.add(out.to(at::kDouble));
          matmul(out, a, b, accumulates);
          EXPECT_TRUE(at::allclose(out.to(at::kDouble), expected, 1e-5, 1e-4))
              << m << ' ' << k << ' ' << n << ' ' << a_is_transposed << b_is_transposed
              << accumulates;
          EXPECT_TRUE(whole.narrow(0, 0, 3).equal(before.narrow(0, 0, 3)));
          EXPECT_TRUE(whole.narrow(0, m + 3, 4).equal(before.narrow(0, m + 3, 4)));
        }
      }
    }
  }
}

TEST(MatmulTest, UsesOneDnnWhereItGains) {
#if defined(__x86_64__)
  if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512dq")) {
    GTEST_SKIP() << "not an AMD CPU with AVX-512: LibTorch's own choice is as good";
  }
  EXPECT_TRUE(uses_onednn()) << "products are half as fast as the docs say";
#else
  GTEST_SKIP() << "for x86 only";
#endif
}

TEST(MatmulTest, GivesTheSameBitsEachTime) {
  const at::Tensor a = at::randn({600, 300});
  const at::Tensor b = at::randn({500, 300}).t();
  const at::Tensor first = at::randn({600, 500});
  matmul(first, a, b);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor again = at::randn({600, 500});
    matmul(again, a, b);
    EXPECT_TRUE(again.equal(first));
  }
}

}  // namespace
}  // namespace atl::model
