// Against experts by their definition, in double and a token at a time; and the same bits whichever
// tokens are read together.
#include "atoll/model/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace atl::model {
namespace {

constexpr int64_t kTokens = 37;
constexpr int64_t kHidden = 6;
constexpr int64_t kExperts = 5;

at::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// Something else of each expert, and not linear.
at::Tensor say(int64_t expert, const at::Tensor& x) {
  return (x * static_cast<double>(expert + 1)).tanh() + static_cast<double>(expert);
}

at::Tensor mixed(const at::Tensor& logits_ME, const at::Tensor& x_MC, int64_t experts_per_token,
                 bool normalises) {
  return mix(route(logits_ME, experts_per_token, normalises), x_MC, say);
}

TEST(ExpertsTest, IsWhatItsDefinitionSays) {
  const at::Tensor logits_ME = random({kTokens, kExperts}, 1);
  const at::Tensor x_MC = random({kTokens, kHidden}, 2);
  for (const int64_t experts_per_token : {int64_t{1}, int64_t{2}, kExperts}) {
    for (const bool normalises : {true, false}) {
      const at::Tensor found = mixed(logits_ME, x_MC, experts_per_token, normalises);
      for (int64_t m = 0; m < kTokens; ++m) {
        const at::Tensor logits = logits_ME[m].to(at::kDouble);
        const at::Tensor read = std::get<0>(logits.topk(experts_per_token)).min() <= logits;
        at::Tensor shares = logits.exp() * read;
        shares = shares / (normalises ? shares : logits.exp()).sum();
        at::Tensor wanted = at::zeros({kHidden}, at::kDouble);
        for (int64_t e = 0; e < kExperts; ++e) {
          wanted += shares[e] * say(e, x_MC[m].to(at::kDouble));
        }
        EXPECT_LT((found[m] - wanted).abs().max().item<double>(), 1e-5);
      }
    }
  }
}

TEST(ExpertsTest, HasTheSameBitsWhicheverTokensAreReadTogether) {
  const at::Tensor logits_ME = random({kTokens, kExperts}, 3);
  const at::Tensor x_MC = random({kTokens, kHidden}, 4);
  const at::Tensor whole = mixed(logits_ME, x_MC, 3, true);
  for (const int64_t step : {1, 4, 20}) {
    for (int64_t begin = 0; begin < kTokens; begin += step) {
      const int64_t size = std::min<int64_t>(step, kTokens - begin);
      EXPECT_TRUE(
          at::equal(mixed(logits_ME.narrow(0, begin, size), x_MC.narrow(0, begin, size), 3, true),
                    whole.narrow(0, begin, size)));
    }
  }
}

TEST(ExpertsTest, TheLossIsLeastWhereAllAreReadEqually) {
  const at::Tensor even = balance_loss(route(at::eye(kExperts) * 1e-3, 1, true));
  EXPECT_NEAR(even.item<double>(), 1, 1e-6);
  const at::Tensor one = at::zeros({kTokens, kExperts});
  one.select(1, 2).fill_(100);
  EXPECT_NEAR(balance_loss(route(one, 1, true)).item<double>(), kExperts, 1e-6);
  EXPECT_NEAR(balance_loss(route(one, kExperts, true)).item<double>(), kExperts, 1e-6);
}

}  // namespace
}  // namespace atl::model
