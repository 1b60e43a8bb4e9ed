#include "atoll/model/tile_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>

#include "atoll/model/composite.h"
#include "atoll/model/tile_kernel.h"

namespace atl::model {
namespace {

/// Of factors of either type, where this processor has tiles for it.
class TileProductsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!has_tiles(type())) GTEST_SKIP() << "this processor has no tiles for " << type();
  }
  at::ScalarType type() const { return GetParam(); }
  at::Tensor normal(int64_t rows, int64_t columns) const {
    return at::randn({rows, columns}).to(type());
  }
};
INSTANTIATE_TEST_SUITE_P(Types, TileProductsTest, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& test) { return std::string(toString(test.param)); });

/// FP32 goes as three BF16s.
class TileProductsOfFp32Test : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_tiles(at::kFloat)) GTEST_SKIP() << "this processor has no tiles for FP32";
  }
};

at::Tensor product_by_tiles(const at::Tensor& a_MK, const at::Tensor& b_KN,
                            at::ScalarType type = at::kFloat) {
  const at::Tensor out_MN = at::full({a_MK.size(0), b_KN.size(1)}, 7, type);
  multiply_by_tiles(out_MN, a_MK, b_KN, /*accumulates=*/false);
  return out_MN;
}

/// Root mean square of the error, over that of the product.
double error_of(const at::Tensor& made_MN, const at::Tensor& exact_MN) {
  const at::Tensor off_MN = made_MN.to(at::kDouble).sub(exact_MN);
  return (off_MN.norm() / exact_MN.norm()).item<double>();
}

at::Tensor exact(const at::Tensor& a_MK, const at::Tensor& b_KN) {
  return at::mm(a_MK.to(at::kDouble), b_KN.to(at::kDouble));
}

/// Numbers of all magnitudes that three BF16s hold, every bit of them drawn.
at::Tensor drawn_bits(int64_t rows, int64_t columns) {
  const at::Tensor exponents = at::randint(30, 225, {rows, columns}, at::kInt);
  const at::Tensor bits = at::randint(0, 1 << 23, {rows, columns}, at::kInt);
  const at::Tensor signs = at::randint(-1, 1, {rows, columns}, at::kInt);
  return (exponents.mul(1 << 23) + bits + signs.mul(int64_t{1} << 31).to(at::kInt))
      .view(at::kFloat);
}

TEST_F(TileProductsOfFp32Test, NoBitOfFp32IsLost) {
  for (const int64_t size : {32, 50, 700}) {
    const at::Tensor x = drawn_bits(size, 90);
    EXPECT_TRUE(product_by_tiles(at::eye(size), x).equal(x));
    EXPECT_TRUE(product_by_tiles(x.t(), at::eye(size)).equal(x.t()));
    EXPECT_TRUE(product_by_tiles(at::eye(size), x.t().contiguous().t()).equal(x));
    EXPECT_TRUE(product_by_tiles(x.t().contiguous(), at::eye(size)).equal(x.t()));
  }
}

TEST_F(TileProductsOfFp32Test, ErrorsAreThoseOfFp32) {
  for (const int64_t depth : {32, 512, 4096}) {
    for (const bool is_positive : {false, true}) {
      at::Tensor a_MK = at::randn({200, depth});
      at::Tensor b_KN = at::randn({depth, 150});
      if (is_positive) {
        a_MK.abs_();
        b_KN.abs_();
      }
      const at::Tensor usual_MN = at::zeros({200, 150});
      composite::matmul(usual_MN, a_MK, b_KN, /*accumulates=*/false);
      const at::Tensor exact_MN = exact(a_MK, b_KN);
      EXPECT_LT(error_of(product_by_tiles(a_MK, b_KN), exact_MN), error_of(usual_MN, exact_MN))
          << depth;
    }
  }
}

/// More panels than pass at a time, more depth than a panel has, on either side.
TEST_P(TileProductsTest, LargeOnesGoBlockByBlock) {
  for (const auto& [m, n, k] :
       {std::tuple{2100, 2090, 40}, {70, 2100, 33}, {300, 40, 1700}, {70, 80, 5000}}) {
    const at::Tensor a_MK = normal(m, k);
    const at::Tensor b_KN = normal(k, n);
    EXPECT_LT(error_of(product_by_tiles(a_MK, b_KN), exact(a_MK, b_KN)), 1e-6);
    const at::Tensor twice_MN = product_by_tiles(a_MK, b_KN);
    multiply_by_tiles(twice_MN, a_MK, b_KN, /*accumulates=*/true);
    EXPECT_LT(error_of(twice_MN, exact(a_MK, b_KN).mul(2)), 1e-6);
  }
}

TEST_P(TileProductsTest, WritesIntoPartOfSomethingWider) {
  const at::Tensor a_MK = normal(70, 40);
  const at::Tensor b_KN = normal(40, 90);
  const at::Tensor plain_MN = product_by_tiles(a_MK, b_KN);
  const at::Tensor whole = at::full({70, 120}, 7, at::kFloat);
  const at::Tensor out_MN = whole.narrow(1, 11, 90);
  multiply_by_tiles(out_MN, a_MK, b_KN, /*accumulates=*/false);
  EXPECT_TRUE(out_MN.equal(plain_MN));
  multiply_by_tiles(out_MN, a_MK, b_KN, /*accumulates=*/true);
  EXPECT_TRUE(out_MN.equal(plain_MN * 2));
  EXPECT_TRUE(whole.narrow(1, 0, 11).eq(7).all().item<bool>());
  EXPECT_TRUE(whole.narrow(1, 101, 19).eq(7).all().item<bool>());
}

/// Of whole numbers FP32 sums are exact in any order.
TEST(TileProductsIntoBf16Test, TheyAreRoundedOnce) {
  if (!has_tiles(at::kBFloat16)) GTEST_SKIP() << "this processor has no tiles for BF16";
  const at::Tensor a_MK = at::randint(-8, 9, {1000, kMostDepthIntoBf16}, at::kBFloat16);
  const at::Tensor b_KN = at::randint(-8, 9, {kMostDepthIntoBf16, 80}, at::kBFloat16);
  EXPECT_TRUE(
      product_by_tiles(a_MK, b_KN, at::kBFloat16).equal(exact(a_MK, b_KN).to(at::kBFloat16)));
}

TEST_P(TileProductsTest, BitsDoNotHangOnThreads) {
  const int threads = at::get_num_threads();
  for (const auto& [m, n, k] : {std::tuple{900, 300, 700}, {300, 900, 700}}) {
    const at::Tensor a_MK = normal(m, k);
    const at::Tensor b_KN = normal(k, n);
    at::set_num_threads(1);
    const at::Tensor alone_MN = product_by_tiles(a_MK, b_KN);
    for (const int count : {2, 3, 40}) {
      at::set_num_threads(count);
      EXPECT_TRUE(product_by_tiles(a_MK, b_KN).equal(alone_MN)) << count;
    }
  }
  at::set_num_threads(threads);
}

TEST_P(TileProductsTest, WhatIsNoNumberStaysInItsRow) {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity()}) {
    const at::Tensor a_MK = normal(40, 64);
    a_MK[3][5] = odd;
    const at::Tensor out_MN = product_by_tiles(a_MK, normal(64, 50));
    EXPECT_FALSE(at::isfinite(out_MN[3]).any().item<bool>());
    EXPECT_EQ(at::isfinite(out_MN).sum().item<int64_t>(), 39 * 50);
  }
}

/// Memory of before, which is not of this product, does not come in.
TEST_P(TileProductsTest, NothingIsReadBehindTheLastLane) {
  const at::Tensor whole_MK = at::full({80, 80}, std::numeric_limits<float>::quiet_NaN(), type());
  for (const bool is_turned : {false, true}) {
    const at::Tensor a_MK = (is_turned ? whole_MK.t() : whole_MK).narrow(0, 0, 37).narrow(1, 0, 45);
    whole_MK.fill_(std::numeric_limits<float>::quiet_NaN());
    a_MK.normal_();
    EXPECT_TRUE(at::isfinite(product_by_tiles(a_MK, a_MK.t())).all().item<bool>());
    EXPECT_TRUE(at::isfinite(product_by_tiles(a_MK.t(), a_MK)).all().item<bool>());
  }
}

#if defined(__x86_64__)
/// Two panels, of which sums are exact in any order, and whose results lie in wider rows. Vectors
/// are called by themselves, as products take AMX where it is.
class VectorKernelTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (!has_tiles(at::kBFloat16)) GTEST_SKIP() << "this processor has no tiles for BF16";
    pack_panel<uint16_t>(Side::kFirst, {bits(a_MK_), depth_, 1}, kPanelLanes, depth_, bits(first_));
    pack_panel<uint16_t>(Side::kSecond, {bits(b_KN_), 1, kPanelLanes}, kPanelLanes, depth_,
                         bits(second_));
  }

  static uint16_t* bits(const at::Tensor& x) {
    return static_cast<uint16_t*>(x.mutable_data_ptr());
  }

  template <typename Out>
  void check(at::ScalarType type, bool adds) const {
    const at::Tensor wide = at::full({kPanelLanes, 50}, 7, type);
    const at::Tensor out_MN = wide.narrow(1, 11, kPanelLanes);
    multiply_panels_by_vectors(num_steps_, bits(first_), bits(second_),
                               static_cast<Out*>(out_MN.mutable_data_ptr()), out_MN.stride(0),
                               adds);
    EXPECT_TRUE(out_MN.equal(exact(a_MK_, b_KN_).add(adds ? 7 : 0).to(type)));
    EXPECT_TRUE(wide.narrow(1, 0, 11).eq(7).all().item<bool>());
    EXPECT_TRUE(wide.narrow(1, 11 + kPanelLanes, 7).eq(7).all().item<bool>());
  }

  int64_t depth_ = GetParam();
  int64_t num_steps_ = (depth_ + kStepDepth - 1) / kStepDepth;
  at::Tensor a_MK_ = at::randint(-8, 9, {kPanelLanes, depth_}, at::kBFloat16);
  at::Tensor b_KN_ = at::randint(-8, 9, {depth_, kPanelLanes}, at::kBFloat16);
  at::Tensor first_ = at::empty({num_steps_ * kStepSize}, at::kBFloat16);
  at::Tensor second_ = at::empty_like(first_);
};
// One part of a step, steps that stay in the nearest cache, and more.
INSTANTIATE_TEST_SUITE_P(Depths, VectorKernelTest, testing::Values(1, 256, 300, 800));

TEST_P(VectorKernelTest, WritesFp32) { check<float>(at::kFloat, /*adds=*/false); }
TEST_P(VectorKernelTest, AddsToFp32) { check<float>(at::kFloat, /*adds=*/true); }
TEST_P(VectorKernelTest, RoundsOnceToBf16) { check<uint16_t>(at::kBFloat16, /*adds=*/false); }
#endif

}  // namespace
}  // namespace atl::model
