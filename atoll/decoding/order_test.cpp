#include "atoll/decoding/order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "atoll/base/error.h"

namespace atl::decoding {
namespace {

constexpr int64_t kVocab = 70;
constexpr int64_t kHidden = 3;

Order token() {
  return {.wanted = Wanted::kToken,
          .is_scored = true,
          .num_top = 2,
          .position = 9,
          .sampler = {.seed = 5},
          .bias = {{69, 2.0F}},
          .seen = {{.id = 3, .num_made = 1}},
          .allowed = {0b1010, 0b100000}};
}

std::vector<float> logits() {
  std::vector<float> logits_V(kVocab);
  for (size_t i = 0; i < logits_V.size(); ++i) logits_V[i] = std::sin(static_cast<float>(i));
  return logits_V;
}

TEST(OrderTest, OnlyWhatIsAllowedIsDrawnAndFits) {
  for (int64_t position = 0; position < 50; ++position) {
    Order order = token();
    order.position = position;
    std::vector<float> row = logits();
    const Outcome outcome = follow(order, row);
    EXPECT_TRUE(outcome.score.id == 1 || outcome.score.id == 3 || outcome.score.id == 69);
    EXPECT_EQ(outcome.score.top.size(), 2U);
    EXPECT_TRUE(fits(outcome, order, kVocab, kHidden));
  }
}

TEST(OrderTest, AnotherOutcomeThanAnOrdersDoesNotFit) {
  std::vector<float> row = logits();
  const Outcome good = follow(token(), row);
  const auto expect_misfit = [&](const std::function<void(Outcome&)>& change) {
    Outcome changed = good;
    change(changed);
    EXPECT_FALSE(fits(changed, token(), kVocab, kHidden));
  };
  expect_misfit([](Outcome& outcome) { outcome.score.id = 2; });  // Not allowed.
  expect_misfit([](Outcome& outcome) { outcome.score.id = kVocab; });
  expect_misfit([](Outcome& outcome) { outcome.score.id = -1; });
  expect_misfit([](Outcome& outcome) { outcome.score.top.pop_back(); });
  expect_misfit([](Outcome& outcome) { outcome.score.logprob = std::nan(""); });
  expect_misfit([](Outcome& outcome) { outcome.wanted = Wanted::kScore; });
  const Order hidden{.wanted = Wanted::kHidden};
  EXPECT_TRUE(fits({.wanted = Wanted::kHidden, .score = {}, .hidden_C = {1, 2, 3}}, hidden, kVocab,
                   kHidden));
  EXPECT_FALSE(
      fits({.wanted = Wanted::kHidden, .score = {}, .hidden_C = {1, 2}}, hidden, kVocab, kHidden));
  EXPECT_FALSE(fits({.wanted = Wanted::kHidden, .score = {}, .hidden_C = {1, 2, HUGE_VALF}}, hidden,
                    kVocab, kHidden));
}

TEST(OrderTest, AStrangersOrderThatMakesNoSenseIsRefused) {
  EXPECT_NO_THROW(check(token(), kVocab));
  EXPECT_NO_THROW(check(Order(), kVocab));
  const auto expect_refusal = [](const std::function<void(Order&)>& change) {
    Order order = token();
    change(order);
    EXPECT_THROW(check(order, kVocab), InputError);
  };
  expect_refusal([](Order& order) { order.bias[0].first = kVocab; });
  expect_refusal([](Order& order) { order.bias[0].second = std::nanf(""); });
  expect_refusal([](Order& order) { order.seen[0].id = -1; });
  expect_refusal([](Order& order) { order.num_top = -1; });
  expect_refusal([](Order& order) { order.sampler.temperature = -1; });
  expect_refusal([](Order& order) { order.sampler.top_p = std::nan(""); });
  expect_refusal([](Order& order) { order.allowed = {0, 0}; });
  expect_refusal([](Order& order) { order.allowed = {1}; });
  expect_refusal([](Order& order) { order.allowed = {1, 0b1000000}; });  // Id 70.
  expect_refusal([](Order& order) {
    order.wanted = Wanted::kScore;
    order.id = kVocab;
  });
}

}  // namespace
}  // namespace atl::decoding
