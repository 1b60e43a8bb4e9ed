#include "atoll/kv/whole_products.h"

#include <gtest/gtest.h>

#include "atoll/base/random.h"

namespace atl::kv {
namespace {

std::vector<int16_t> drawn(size_t count, double deviation, uint64_t seed) {
  std::vector<int16_t> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<int16_t>(deviation * random_normal(seed, 0, i)));
  }
  return values;
}

TEST(WholeProducts, EveryProcessorGivesTheDefinitionsNumbers) {
  for (const size_t num_outputs : {1, 12, 13, 40}) {
    for (const size_t num_inputs : {1, 2, 7, 33}) {
      const auto weights_MK = drawn(num_outputs * num_inputs, 3000, num_outputs);
      const WholeMatrix matrix(weights_MK, num_outputs);
      for (const size_t num_tokens : {size_t{1}, size_t{17}, TokenBlock::kTokens}) {
        auto x_KT = drawn(num_inputs * (num_tokens + 3), 3000, num_tokens);
        for (size_t i = 0; i < x_KT.size(); ++i) {
          // Some inputs are 0 of all tokens, as most components are.
          if (i / (num_tokens + 3) % 8 > 5) x_KT[i] = 0;
        }
        TokenBlock block(num_inputs);
        block.take(x_KT, 0, 1);
        block.take(x_KT, 3, num_tokens);
        for (const Registers registers : supported_registers()) {
          std::vector<int32_t> out_MT;
          matrix.multiply(block, num_outputs, out_MT, registers);
          for (size_t m = 0; m < num_outputs; ++m) {
            for (size_t t = 0; t < TokenBlock::kTokens; ++t) {
              int64_t sum = 0;
              for (size_t k = 0; t < num_tokens && k < num_inputs; ++k) {
                sum += weights_MK[m * num_inputs + k] * x_KT[k * (num_tokens + 3) + 3 + t];
              }
              ASSERT_EQ(out_MT[m * TokenBlock::kTokens + t], sum);
            }
          }
        }
      }
    }
  }
}

TEST(WholeProducts, AShorterBlockIsOfTheFirstInputs) {
  const auto weights_MK = drawn(5 * 8, 100, 1);
  const WholeMatrix matrix(weights_MK, 5);
  TokenBlock block(3);
  block.take(std::vector<int16_t>(3, 1), 0, 1);
  std::vector<int32_t> out_MT;
  matrix.multiply(block, 2, out_MT);
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(out_MT[m * TokenBlock::kTokens],
              weights_MK[m * 8] + weights_MK[m * 8 + 1] + weights_MK[m * 8 + 2]);
  }
}

}  // namespace
}  // namespace atl::kv
