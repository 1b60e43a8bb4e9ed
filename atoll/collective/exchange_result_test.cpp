// What an exchange leaves behind for those who had no part in it.
#include <gtest/gtest.h>

#include "atoll/collective/blob_arena.h"
#include "atoll/collective/round_result.h"
#include "atoll/testing/exchange_group.h"

namespace atl::collective {
namespace {

CommittedRound missed_round(const Group& group, RoundResult result) {
  return {.round = kRound,
          .count = group.in.values[0].size(),
          .segment_values = group.in.segment_values,
          .members = group.numbers,
          .weights = group.in.weights,
          .result = std::move(result)};
}

struct Case {
  Topology topology;
  std::string codec;
  size_t num_members;
  size_t count;
  bool forgets;  // A connection breaks in the middle of the round.
};

class ResultTest : public testing::TestWithParam<Case> {
 protected:
  static Group make_group() {
    const Case& that = GetParam();
    Group group(that.num_members, that.count, that.codec, that.topology);
    if (that.count > 100'000) {
      group.in.segment_values = 200'000;
      group.chunk = kChunkBytes;
      group.in.shares = swarm::equal_shares(group.num_segments(), std::ssize(group.names));
    }
    return group;
  }

  /// A chunk of each link has come when the connections of the first member break.
  static void break_links(Group& group) {
    group.connect();
    for (size_t rank = 0; rank < group.names.size(); ++rank) group.work(rank);
    for (auto& [link, queue] : group.links) {
      if (queue.empty()) continue;
      auto& to = *group.members[static_cast<size_t>(link.second)];
      ASSERT_TRUE(to.receive(queue.front()).has_value());
    }
    for (int32_t other = 1; other < std::ssize(group.names); ++other) {
      group.members[0]->forget(other);
      group.members[static_cast<size_t>(other)]->forget(0);
    }
    std::erase_if(group.links, [](const auto& entry) {
      return entry.first.first == 0 || entry.first.second == 0;
    });
    for (auto& [link, queue] : group.links) {
      if (!queue.empty()) queue.pop_front();
    }
    for (auto& member : group.members) {
      Exchange::Plan plan = member->plan();
      plan.header.attempt += 1;
      member->reopen(std::move(plan));
    }
  }

  static void finish(Group& group) {
    for (bool any = true; any;) {
      any = false;
      for (size_t rank = 0; rank < group.names.size(); ++rank) any = group.work(rank) || any;
      for (auto& [link, queue] : group.links) {
        for (; !queue.empty(); queue.pop_front(), any = true) {
          auto& to = *group.members[static_cast<size_t>(link.second)];
          const auto received = to.receive(queue.front());
          ASSERT_TRUE(received.has_value()) << received.error().message;
        }
      }
    }
  }
};

TEST_P(ResultTest, OfEveryMemberIsTheMeanAlsoWhenTheExchangeIsGone) {
  Group group = make_group();
  if (GetParam().forgets) {
    break_links(group);
  } else {
    group.connect();
  }
  finish(group);
  group.expect_as_defined();
  const std::vector<float> expected(group.members[0]->mean().begin(),
                                    group.members[0]->mean().end());
  std::vector<RoundResult> results;
  for (auto& member : group.members) results.push_back(member->take_result());
  group.members.clear();
  const Bytes encoded = encode(results[0]);
  for (const RoundResult& result : results) {
    EXPECT_EQ(encode(result), encoded) << "all hold the same bytes";
    std::vector<float> mean(expected.size());
    ASSERT_TRUE(decode_mean(missed_round(group, result), *group.codec, mean).has_value());
    EXPECT_EQ(mean, expected);
  }
  std::vector<float> mean(expected.size());
  ASSERT_TRUE(
      decode_mean(missed_round(group, decode_result(encoded)), *group.codec, mean).has_value());
  EXPECT_EQ(mean, expected);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ResultTest,
                         testing::Values(Case{Topology::kScatter, "int8", 3, 5'000, false},
                                         Case{Topology::kGather, "int8", 3, 5'000, false},
                                         Case{Topology::kScatter, "fp32", 3, 5'000, true},
                                         Case{Topology::kGather, "fp32", 3, 5'000, true},
                                         // More than is copied.
                                         Case{Topology::kScatter, "fp32", 2, 3'000'000, false},
                                         Case{Topology::kGather, "fp32", 2, 3'000'000, false},
                                         Case{Topology::kGather, "fp32", 2, 3'000'000, true}));

TEST(ResidualTest, OfARoundThatWasDecidedElsewhereIsKeptWhereNothingWasSummed) {
  Group group(2, 5'000, "int8", Topology::kScatter);
  group.add_residuals();
  group.connect();
  while (group.work(0)) {
  }
  while (group.work(1)) {
  }
  for (const Part& part : group.links[{1, 0}]) {  // The means of member 1 are not there yet.
    ASSERT_TRUE(group.members[0]->receive(part).has_value());
  }
  while (group.work(0)) {
  }
  ASSERT_FALSE(group.members[0]->complete());
  group.members[0]->settle_residual();
  const DefinedRound expected = define_round(group.in);
  const size_t summed = static_cast<size_t>(group.in.shares[0]) * group.in.segment_values;
  for (size_t i = 0; i < 5'000; ++i) {
    ASSERT_EQ(group.new_residuals[0][i],
              i < summed ? expected.new_residuals[0][i] : group.in.residuals[0][i])
        << i;
  }
}

TEST(BlobArenaTest, KeepsWhatWasTakenThoughItIsFullAndGone) {
  std::vector<SharedBytes> kept;
  {
    PagePool pool(0);
    BlobArena arena(3, 100, pool);
    for (int i = 0; i < 6; ++i) kept.push_back(arena.keep(Bytes(100, static_cast<std::byte>(i))));
  }
  for (int i = 0; i < 6; ++i) {
    const Bytes expected(100, static_cast<std::byte>(i));
    EXPECT_TRUE(std::ranges::equal(kept[static_cast<size_t>(i)].bytes, expected));
  }
  EXPECT_EQ(kept[0].memory, kept[2].memory);
  EXPECT_NE(kept[2].memory, kept[3].memory);
}

}  // namespace
}  // namespace atl::collective
