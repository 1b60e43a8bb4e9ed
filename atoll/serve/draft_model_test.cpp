// A model that guesses for texts that grow, are taken back, and share what they begin with, beside
// the same model read anew each time.
#include "atoll/serve/draft_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

constexpr int64_t kPageBytes = 3 * 2 * 2 * 32 * 6 * 4;

at::Tensor logits_behind(const std::vector<int64_t>& ids) {
  const at::Tensor tokens_1T =
      at::empty({1, std::ssize(ids)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(ids, tokens_1T.mutable_data_ptr<int64_t>());
  const at::Tensor hidden_TC = small_model().hidden_BTC(tokens_1T)[0];
  return small_model().logits(hidden_TC.narrow(0, hidden_TC.size(0) - 1, 1))[0];
}

class DraftModelTest : public ::testing::Test {
 protected:
  /// Reads until there are logits of all, and looks at them.
  void expect_right(DraftModel& draft, const std::vector<std::vector<int64_t>>& texts) {
    std::vector<DraftModel::Text> wanted;
    for (size_t i = 0; i < texts.size(); ++i) wanted.push_back({.id = i + 1, .ids = texts[i]});
    while (!wanted.empty()) {
      ++num_passes_;
      for (const DraftModel::Read& read : draft.read(wanted)) {
        EXPECT_TRUE(read.row_V.allclose(logits_behind(texts[read.id - 1]), 1e-4, 1e-4)) << read.id;
        std::erase_if(wanted, [&](const auto& each) { return each.id == read.id; });
      }
    }
  }

  const at::NoGradGuard no_grad_;
  int64_t num_passes_ = 0;
};

TEST_F(DraftModelTest, FindsWhatIsNotAsItWas) {
  DraftModel draft(small_model(), 61, int64_t{1} << 24);
  std::vector<std::vector<int64_t>> texts{text(1, 90), text(2, 3), text(3, 33)};
  expect_right(draft, texts);
  num_passes_ = 0;
  for (auto& each : texts) each.push_back(7);
  expect_right(draft, texts);
  EXPECT_EQ(num_passes_, 1);
  texts[0].insert(texts[0].end(), {1, 2, 3});
  texts[1].back() = 8;  // Its last token was guessed wrong,
  texts[2].resize(20);  // and of this one more.
  expect_right(draft, texts);
  EXPECT_EQ(num_passes_, 2);
  expect_right(draft, texts);  // The same again: what follows the last token is wanted once more.
  EXPECT_EQ(num_passes_, 3);
}

TEST_F(DraftModelTest, LongTextsHoldNobodyUp) {
  DraftModel draft(small_model(), 61, int64_t{1} << 24);
  const auto longer = text(1, 150);
  const auto shorter = text(2, 4);
  const std::vector<DraftModel::Text> wanted{{.id = 1, .ids = longer}, {.id = 2, .ids = shorter}};
  const auto read = draft.read(wanted);
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].id, 2U);
}

TEST_F(DraftModelTest, WhatIsSharedIsReadOnce) {
  DraftModel draft(small_model(), 61, int64_t{1} << 24);
  expect_right(draft, {text(1, 130)});
  draft.forget(1);
  num_passes_ = 0;
  expect_right(draft, {text(1, 130)});
  EXPECT_EQ(num_passes_, 1);
}

TEST_F(DraftModelTest, WhatDoesNotFitIsGivenUpUntilAnotherIsGone) {
  DraftModel draft(small_model(), 61, 3 * kPageBytes);
  const auto one = text(1, 70);
  const auto other = text(2, 40);
  const auto too_long = text(3, 97);
  const DraftModel::Text first{.id = 1, .ids = one};
  const DraftModel::Text second{.id = 2, .ids = other};
  EXPECT_TRUE(draft.gives_up({.id = 3, .ids = too_long}));
  while (draft.lacks(first)) draft.read(std::span(&first, 1));
  for (int i = 0; i < 3; ++i) draft.read(std::span(&second, 1));
  EXPECT_TRUE(draft.gives_up(second));
  EXPECT_FALSE(draft.gives_up(first));
  draft.forget(1);
  EXPECT_FALSE(draft.gives_up(second));
  while (draft.lacks(second)) draft.read(std::span(&second, 1));
  EXPECT_FALSE(draft.gives_up(second));
  EXPECT_LE(draft.kv_bytes(), 3 * kPageBytes);
}

TEST_F(DraftModelTest, OfALargerVocabularyOnlyTheModelsIdsCount) {
  DraftModel draft(small_model(), 50, int64_t{1} << 24);
  const auto ids = text(2, 4);
  const DraftModel::Text wanted{.id = 1, .ids = ids};
  const auto read = draft.read(std::span(&wanted, 1));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].row_V.numel(), 50);
}

}  // namespace
}  // namespace atl::serve
