#include "atoll/chain/rows.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/chain/wire.h"

namespace atl::chain {
namespace {

decoding::Order order(int64_t position) {
  return {.wanted = decoding::Wanted::kToken,
          .is_scored = true,
          .num_top = 2,
          .position = position,
          .sampler = {.temperature = 0.5, .top_k = 3, .seed = 7},
          .bias = {{4, 0.5F}},
          .seen = {{.id = 3, .num_made = 2}},
          .allowed = {5, 6}};
}

Work work() {
  Work work{.session = {.gateway = 1, .number = 2}, .hops = {{"a:1", {0, 2}, 0}}, .rows = {}};
  work.rows = {.begin = 5, .num_tokens = 3, .ids = {7, 8, 9}};
  for (int64_t i = 0; i < 3; ++i) work.rows.orders.push_back(order(i));
  work.rows.orders[1] = {.wanted = decoding::Wanted::kScore, .id = 9, .num_top = 1};
  return work;
}

Output output() {
  Output output{.session = {.gateway = 1, .number = 2}, .rows = {}};
  output.rows = {.begin = 5, .num_tokens = 2};
  output.rows.outcomes = {{.wanted = decoding::Wanted::kToken,
                           .score = {.id = 4, .logprob = -0.5, .top = {{4, -0.5}}},
                           .hidden_C = {}},
                          {.wanted = decoding::Wanted::kHidden, .score = {}, .hidden_C = {1, 2}}};
  return output;
}

TEST(Rows, ACutTakesOfEachColumnWhatIsOfItsTokens) {
  const Rows middle = cut(work().rows, 6, 7);
  EXPECT_EQ(middle.begin, 6);
  EXPECT_EQ(middle.num_tokens, 1U);
  EXPECT_EQ(middle.ids, std::vector<int32_t>{8});
  EXPECT_EQ(middle.orders, std::vector{work().rows.orders[1]});
  const Rows last = cut(output().rows, 6, 100);
  EXPECT_EQ(last.outcomes, std::vector{output().rows.outcomes[1]});
  EXPECT_EQ(cut(work().rows, 0, 5).num_tokens, 0U);
}

TEST(Rows, OrdersAndOutcomesTravel) {
  const auto sent = std::get<Work>(decode(encode(work())));
  EXPECT_EQ(sent.rows.ids, work().rows.ids);
  EXPECT_EQ(sent.rows.orders, work().rows.orders);
  EXPECT_EQ(std::get<Output>(decode(encode(output()))).rows.outcomes, output().rows.outcomes);
}

TEST(Rows, ColumnsThatAreNotOfTheseTokensAreRefused) {
  const auto expect_refused = [](auto message, const auto& change) {
    change(message.rows);
    EXPECT_THROW(decode(encode(message)), InputError);
  };
  expect_refused(work(), [](Rows& rows) { rows.ids.pop_back(); });
  expect_refused(work(), [](Rows& rows) { rows.orders.pop_back(); });
  expect_refused(work(), [](Rows& rows) { rows.rows_TC = Bytes(3); });  // Beside the tokens.
  expect_refused(work(), [](Rows& rows) { rows.outcomes = output().rows.outcomes; });
  expect_refused(work(), [](Rows& rows) { rows = {.begin = 5}; });
  expect_refused(output(), [](Rows& rows) { rows.outcomes.pop_back(); });
  expect_refused(output(), [](Rows& rows) { rows.orders = {order(1), order(2)}; });
  expect_refused(output(), [](Rows& rows) { rows.ids = {1, 2}; });
}

}  // namespace
}  // namespace atl::chain
