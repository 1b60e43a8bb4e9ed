// Servers that send what cannot be: the answers stay those of one process, and another server takes
// the place of who sent it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "atoll/testing_torch/chain_swarm.h"

namespace atl::serve {
namespace {

constexpr BlockEngineOptions kHead{.has_head = true};

/// Of the rows that a server sends, from the fourth message on.
Change behind_three(std::function<void(chain::Rows&)> change) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  return [count, change = std::move(change)](chain::Message& message) {
    auto* work = std::get_if<chain::Work>(&message);
    auto* output = std::get_if<chain::Output>(&message);
    chain::Rows* const rows = work != nullptr     ? &work->rows
                              : output != nullptr ? &output->rows
                                                  : nullptr;
    if (rows != nullptr && rows->num_tokens > 0 && ++*count > 3) change(*rows);
  };
}

void put(chain::Rows& rows, float value) {
  std::memcpy(rows.rows_TC.data() + rows.rows_TC.size() - sizeof value, &value, sizeof value);
}

void shorten(chain::Rows& rows) {
  const size_t row = rows.rows_TC.size() / rows.num_tokens;
  rows.rows_TC.resize(rows.num_tokens * (row - sizeof(float)));
}

class NonsenseTest : public ChainSwarm {
 protected:
  /// `rogue` has these layers of the chain; later an honest server has them as well.
  void expect_replaced(ChainGenerator& generator, chain::Span rogue,
                       const BlockEngineOptions& engine) {
    auto heard = ask(generator, requests(40));
    while (generator.status().recoveries["damaged"] == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    serve("honest", rogue, engine);
    expect_same(heard, requests(40));
  }
};

TEST_F(NonsenseTest, RowsThatAreNotFiniteOrOfAnotherShapeOnTheirWayToTheNextServer) {
  for (const auto& change :
       {behind_three([](chain::Rows& rows) { put(rows, std::nanf("")); }),
        behind_three([](chain::Rows& rows) { put(rows, HUGE_VALF); }), behind_three(shorten)}) {
    servers_.clear();
    serve("a", {0, 1});
    serve("b", {1, 2}, {}, 1, change);
    serve("c", {2, 3});
    expect_replaced(*gateway(), {1, 2}, {});
  }
}

TEST_F(NonsenseTest, RowsThatAreNotFiniteOrOfAnotherShapeOnTheirWayToTheGateway) {
  for (const auto& change :
       {behind_three([](chain::Rows& rows) { put(rows, std::nanf("")); }), behind_three(shorten)}) {
    servers_.clear();
    serve("a", {0, 2});
    serve("b", {2, 3}, {}, 1, change);
    expect_replaced(*gateway(), {2, 3}, {});
  }
}

TEST_F(NonsenseTest, WeightsThatAreNotFinite) {
  serve("a", {0, 2});
  serve("b", {2, 3}, {}, std::numeric_limits<float>::quiet_NaN());
  expect_replaced(*gateway(), {2, 3}, {});
}

TEST_F(NonsenseTest, TokensThatCannotHaveBeenDrawn) {
  for (const auto& change :
       {behind_three([](chain::Rows& rows) { rows.outcomes.back().score.id = 61; }),
        behind_three([](chain::Rows& rows) { rows.outcomes.back().score.logprob = std::nan(""); }),
        behind_three([](chain::Rows& rows) { rows.outcomes.back() = {}; })}) {
    servers_.clear();
    serve("a", {0, 2}, kHead);
    serve("b", {2, 3}, kHead, 1, change);
    expect_replaced(*headless_gateway(), {2, 3}, kHead);
  }
}

}  // namespace
}  // namespace atl::serve
