#include "atoll/serve/likelihood.h"

#include <gmock/gmock.h>

#include <limits>

#include "atoll/testing/temporary_folder.h"
#include "atoll/train/evaluate.h"

namespace atl::serve {
namespace {

model::Model small_model() {
  weights::ModelConfig config;
  config.vocab_size = 40;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.max_positions = 16;
  model::Model model(config, at::kCPU, model::Purpose::kInference);
  model.initialise(3);
  model.parameters().values_P().mul_(4);  // So that likelihoods differ.
  return model;
}

/// Token by token, one request at a time.
tasks::Likelihood alone(const model::Model& model, const tasks::TokenRequest& request) {
  std::vector<int64_t> ids = request.context;
  ids.insert(ids.end(), request.continuation.begin(), request.continuation.end());
  const auto scores = train::score_tokens(model, ids, 16, 1, {});
  tasks::Likelihood result{0, true};
  for (size_t i = request.context.size(); i < ids.size(); ++i) {
    result.log_probability += scores[i]->log_probability;
    result.is_greedy = result.is_greedy && scores[i]->rank == 1;
  }
  return result;
}

TEST(LikelihoodTest, ABatchOfUnequalTextsIsEachOfThemAlone) {
  const model::Model model = small_model();
  std::vector<tasks::TokenRequest> requests;
  for (int64_t i = 0; i < 23; ++i) {
    tasks::TokenRequest request;
    for (int64_t j = 0; j <= i % 9; ++j) request.context.push_back((7 * i + 3 * j) % 40);
    for (int64_t j = 0; j <= i % 4; ++j) request.continuation.push_back((5 * i + 11 * j) % 40);
    requests.push_back(request);
  }
  for (int64_t i = 0; i < 3; ++i) {  // What they share is scored, too.
    requests.push_back({{2}, {4, 4, 5, 5, 6, 6, 7, 7, 8, 8, i, 9}});
  }
  // The text of the first of those, and another continuation of it.
  requests.push_back({{2, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 0}, {1}});
  // More endings than one pass has, and more rows than are kept; their beginning is scored, too.
  for (int64_t i = 0; i < 1100; ++i) {
    requests.push_back({{5}, {6, 6, 6, 6, 6, 6, 6, 6, i % 40, i / 40, 1, 2, 3}});
  }
  for (int64_t i = 0; i < 5; ++i) {  // A context that pays to be read once.
    tasks::TokenRequest request{{9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 8, 7}, {i, 2 * i}};
    if (i % 2 == 1) request.continuation.insert(request.continuation.end(), {i, 3});
    requests.push_back(request);
  }
  // What the model itself says is greedy: find it for one context.
  for (int64_t id = 0; id < 40; ++id) requests.push_back({{1, 2, 3}, {id}});
  std::vector<tasks::Likelihood> expected;
  for (const tasks::TokenRequest& request : requests) expected.push_back(alone(model, request));
  int num_greedy = 0;
  std::vector<int64_t> num_read;
  for (const int64_t batch_rows : {1, 5, 0}) {
    int64_t done = 0;
    int64_t all = 0;
    const auto found = likelihoods(model, requests, batch_rows, [&](int64_t number, int64_t total) {
      EXPECT_GT(number, done);
      done = number;
      all = total;
    });
    EXPECT_EQ(done, all);
    num_read.push_back(all);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_NEAR(found[i].log_probability, expected[i].log_probability, 1e-5) << i;
      EXPECT_EQ(found[i].is_greedy, expected[i].is_greedy) << i;
      num_greedy += static_cast<int>(found[i].is_greedy);
    }
  }
  EXPECT_GE(num_greedy, 3);
  EXPECT_EQ(num_read[0], num_read[1]);
  EXPECT_LT(num_read[2], num_read[1]);  // What is shared is read once.
}

TEST(LikelihoodTest, NothingToScoreIsNoWork) {
  EXPECT_TRUE(likelihoods(small_model(), {}, 0, {}).empty());
}

TEST(LikelihoodTest, AModelWithoutNumbersHasNoScore) {
  const model::Model model = small_model();
  model.parameters().values_P().fill_(std::numeric_limits<float>::quiet_NaN());
  const std::vector<tasks::TokenRequest> requests = {{{1, 2}, {3}}};
  EXPECT_THAT(message_of([&] { likelihoods(model, requests, 1, {}); }),
              testing::HasSubstr("not numbers"));
}

}  // namespace
}  // namespace atl::serve
