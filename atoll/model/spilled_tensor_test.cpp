#include "atoll/model/spilled_tensor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::model {
namespace {

TEST(SpilledTensorTest, IsKnownAndSoAreItsSlices) {
  const TestFolder folder;
  const at::Tensor spilled_P = spilled_tensor(folder, 5000);
  EXPECT_TRUE(at::equal(spilled_P, at::zeros({5000})));
  EXPECT_TRUE(is_spilled(spilled_P));
  EXPECT_TRUE(is_spilled(spilled_P.slice(0, 17, 4000)));
  EXPECT_FALSE(is_spilled(spilled_P.clone()));
  EXPECT_FALSE(is_spilled(at::zeros({5000})));
  EXPECT_FALSE(is_spilled(at::Tensor()));
}

TEST(SpilledTensorTest, ValuesStayAsTheyAre) {
  const TestFolder folder;
  const at::Tensor values_P = at::arange(100'000, at::kFloat);
  const at::Tensor spilled_P = spilled_tensor(folder, values_P.numel());
  spilled_P.copy_(values_P);
  let_rest(spilled_P.slice(0, 3, 50'001));
  EXPECT_TRUE(at::equal(spilled_P, values_P));
  let_rest(spilled_P);
  EXPECT_TRUE(at::equal(spilled_P, values_P));
}

TEST(SpilledTensorTest, OtherTensorsDoNotRest) {
  const at::Tensor values_P = at::arange(100'000, at::kFloat);
  let_rest(values_P);
  EXPECT_TRUE(at::equal(values_P, at::arange(100'000, at::kFloat)));
  let_rest(at::Tensor());
}

}  // namespace
}  // namespace atl::model
