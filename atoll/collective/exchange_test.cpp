#include "atoll/collective/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <set>

#include "atoll/swarm/rules.h"
#include "atoll/testing/exchange_group.h"

namespace atl::collective {
namespace {

using swarm::Part;
using swarm::PartKind;
using testing::HasSubstr;

TEST(ChunkSizeTest, SlowLinesStillHearSomethingEvery30Seconds) {
  for (const double bits_per_second : {0.0, 20e3, 1e6, 100e6, 1e10}) {
    const size_t size = chunk_size(bits_per_second / 8);
    EXPECT_GE(size, kChunkBytes);
    EXPECT_LE(size, kMaxChunkBytes);
    EXPECT_LT(static_cast<double>(size) * 8, 30 * std::max(bits_per_second, 20e3));
  }
  EXPECT_EQ(chunk_size(1e9), kMaxChunkBytes);
}

using Case = std::tuple<size_t, size_t, std::string, Topology, bool>;
class ExchangeTest : public testing::TestWithParam<Case> {};

TEST_P(ExchangeTest, EqualsTheDefinitionInAnyOrderOfArrival) {
  const auto& [num_members, count, codec, topology, has_residual] = GetParam();
  if (has_residual && topology == Topology::kGather) return;  // Owners have residuals.
  for (uint64_t order = 0; order < 3; ++order) {
    Group group(num_members, count, codec, topology);
    if (has_residual) group.add_residuals();
    group.run(order);
    group.expect_as_defined();
  }
}

TEST_P(ExchangeTest, EqualsItWithValuesOnADeviceThatAreEncodedSegmentBySegment) {
  const auto& [num_members, count, codec, topology, has_residual] = GetParam();
  if (has_residual && topology == Topology::kGather) return;
  Group group(num_members, count, codec, topology);
  if (has_residual) group.add_residuals();
  group.on_device = true;
  group.run(1);
  group.expect_as_defined();
  const size_t least = (count + group.in.segment_values - 1) / group.in.segment_values;
  EXPECT_GE(group.num_device_encodings, num_members * least);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ExchangeTest,
                         testing::Combine(testing::Values(1, 2, 3, 5),
                                          testing::Values(0, 1, 1023, 1025, 20'000),
                                          testing::Values("fp32", "bf16", "e3m0", "int8"),
                                          testing::Values(Topology::kScatter, Topology::kGather),
                                          testing::Bool()));

TEST(ExchangeTest, EveryElementCountsOnceWhateverTheSharesAndSegments) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    uint64_t draws = 0;
    const auto draw = [&](uint64_t end) { return random_bits(seed, 5, draws++) % end; };
    const size_t num_members = size_t{1} << draw(3);
    const size_t count = draw(3000);
    Group group(num_members, count, "fp32", draw(2) == 0 ? Topology::kScatter : Topology::kGather);
    group.in.segment_values = 1 + draw(draw(2) == 0 ? 50 : 5000);
    group.chunk = 1 + draw(5000);
    group.in.weights.assign(num_members, 7);
    int64_t left = group.num_segments();
    for (int64_t& share : group.in.shares) {
      share = draw(4) == 0 ? 0 : static_cast<int64_t>(draw(static_cast<uint64_t>(left) + 1));
      left -= share;
    }
    group.in.shares.back() += left;
    // Whole numbers and a power of two of members: the mean is exact, in any order.
    for (auto& values : group.in.values) {
      for (float& value : values) value = static_cast<float>(draw(1000));
    }
    group.run(seed);
    for (size_t i = 0; i < count; ++i) {
      float mean = 0;
      for (const auto& values : group.in.values) mean += values[i];
      mean /= static_cast<float>(num_members);
      for (const auto& member : group.members) {
        ASSERT_TRUE(member->complete()) << "seed " << seed;
        ASSERT_EQ(member->mean()[i], mean) << "seed " << seed << ", value " << i;
      }
    }
  }
}

TEST(ExchangeTest, OwnersResidualMakesUpForWhatTheMeansLose) {
  Group first(3, 5000, "bf16", Topology::kScatter);
  std::vector<std::vector<float>> residuals(3, std::vector<float>(5000));
  std::vector<double> true_sum(5000);
  std::vector<double> decoded_sum(5000);
  for (uint64_t round = 0; round < 40; ++round) {
    Group group(3, 5000, "bf16", Topology::kScatter, 100 + round);
    for (auto& values : group.in.values) {
      for (float& value : values) value = std::abs(value) + 1;  // Errors that do not cancel.
    }
    group.in.residuals = residuals;
    group.run(round);
    residuals = group.new_residuals;
    const auto factors = coefficients(group.in.weights);
    for (size_t i = 0; i < 5000; ++i) {
      for (size_t rank = 0; rank < 3; ++rank) {
        true_sum[i] += factors[rank] * static_cast<double>(group.members[0]->own().empty()
                                                               ? 0.0F
                                                               : group.members[rank]->own()[i]);
      }
      decoded_sum[i] += group.members[0]->mean()[i];
    }
  }
  size_t begin = 0;
  for (size_t owner = 0; owner < 3; ++owner) {
    const size_t size = static_cast<size_t>(first.in.shares[owner]) * first.in.segment_values;
    for (size_t i = begin; i < std::min<size_t>(begin + size, 5000); ++i) {
      ASSERT_NEAR(decoded_sum[i] + residuals[owner][i], true_sum[i], 2e-4);
      ASSERT_LE(std::abs(residuals[owner][i]), 0x1p-5);  // Half a unit of what bf16 keeps.
    }
    begin += size;
  }
}

class AbstainingTest : public testing::TestWithParam<Topology> {};

TEST_P(AbstainingTest, TheMeanIsThatOfTheOthers) {
  for (size_t abstainer = 0; abstainer < 3; ++abstainer) {
    Group group(3, 5000, "bf16", GetParam());
    group.in.weights[abstainer] = 0;
    std::ranges::fill(group.in.values[abstainer], NAN);
    if (GetParam() == Topology::kScatter) group.add_residuals();
    group.run(abstainer);
    group.expect_as_defined();
    EXPECT_TRUE(std::ranges::all_of(group.members[abstainer]->mean(),
                                    [](float x) { return std::isfinite(x); }));
  }
}

TEST_P(AbstainingTest, WhereAllAbstainTheMeanIsZeroAndNothingIsSent) {
  Group group(3, 5000, "fp32", GetParam());
  group.in.weights = {0, 0, 0};
  if (GetParam() == Topology::kScatter) group.add_residuals();
  group.run(1);
  group.expect_as_defined();
  EXPECT_TRUE(group.links.empty());
  EXPECT_EQ(group.members[0]->mean()[4999], 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Topologies, AbstainingTest,
                         testing::Values(Topology::kScatter, Topology::kGather));

/// By definition: of what the others decode, over all members' shares.
void expect_measures(const Group& group) {
  const DefinedRound defined = define_round(group.in);
  const auto expected = [&](size_t i, size_t j) {
    double sum = 0;
    for (size_t at = 0; at < defined.own[i].size(); ++at) {
      sum += static_cast<double>(defined.own[i][at]) * defined.own[j][at];
    }
    return sum;
  };
  for (size_t i = 0; i < group.names.size(); ++i) {
    double square = 0;
    for (const auto& member : group.members) square += member->measures().squares[i];
    EXPECT_NEAR(square, expected(i, i), 1e-9 * square);
    EXPECT_EQ(square > 0, group.in.weights[i] > 0);
    for (size_t j = 0; j <= i; ++j) {
      double product = 0;
      for (const auto& member : group.members) {
        product += member->measures().products.at(i * (i + 1) / 2 + j);
      }
      EXPECT_NEAR(product, expected(i, j), 1e-9 * std::sqrt(expected(i, i) * expected(j, j)));
    }
  }
}

TEST(ExchangeTest, MembersSayHowLargeContributionsAreAndWhichWayTheyPoint) {
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    for (const auto* codec : {"fp32", "int8"}) {
      Group group(4, 12'000, codec, topology);
      group.in.weights[2] = 0;
      for (float& value : group.in.values[1]) value *= 1e30F;  // Squares beyond a float.
      group.run(5);
      group.expect_as_defined();
      expect_measures(group);
    }
  }
}

TEST(ExchangeTest, RoundIsTheSequenceOfContributionsAndMeans) {
  Group group(2, 3000, "bf16", Topology::kScatter);
  group.connect();
  size_t num_parts = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    while (group.work(rank)) {
    }
  }
  for (auto& [link, queue] : group.links) {
    for (const Part& part : queue) {
      if (part.offset > 0) continue;
      num_parts += 1;
      EXPECT_EQ(part.data[8], std::byte{4});  // Of 2^32 + 4, as codec.h lays it out.
      EXPECT_EQ(part.data[12 - 1], std::byte{0});
    }
  }
  EXPECT_GT(num_parts, 4U);
}

/// Member a of three, of which c abstains, and what b would send it: contributions in segments of
/// 700 values.
struct Receiving {
  explicit Receiving(Topology topology = Topology::kScatter) : group(3, 6000, "fp32", topology) {
    group.in.shares = {3, 6, 0};
    group.in.weights[2] = 0;
    group.connect();
    for (size_t rank = 0; rank < 2; ++rank) {
      while (group.work(rank)) {
      }
    }
    part = group.links.at({1, 0}).front();
  }
  /// b is sent what it lacks of a, and makes its means.
  bool work_of_b() {
    for (auto& queue = group.links.at({0, 1}); !queue.empty(); queue.pop_front()) {
      EXPECT_TRUE(group.members[1]->receive(queue.front()).has_value());
    }
    return group.work(1);
  }
  std::string refusal() {
    const auto result = group.members[0]->receive(part);
    return result ? "" : result.error().message;
  }
  Group group;
  Part part;
};

TEST(ExchangeRefusalTest, MoreOrLessThanASegmentCanBe) {
  Receiving a;
  for (const uint64_t total : {uint64_t{0}, uint64_t{2817}, ~uint64_t{0}}) {
    a.part.total = total;
    EXPECT_THAT(a.refusal(), HasSubstr("where 700 values have 1 to 2816"));
  }
}

TEST(ExchangeRefusalTest, TotalThatChanges) {
  Receiving a;
  EXPECT_EQ(a.refusal(), "");
  a.part.offset = 1000;
  a.part.total -= 1;
  EXPECT_THAT(a.refusal(), HasSubstr("1000 bytes at 1000 of 2815 of segment 0"));
}

TEST(ExchangeRefusalTest, Twice) {
  Receiving a;
  EXPECT_EQ(a.refusal(), "");
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent bytes 0 to 1000 of segment 0 twice"));
}

TEST(ExchangeRefusalTest, OutOfRange) {
  Receiving a;
  a.part.offset = 2000;
  EXPECT_THAT(a.refusal(), HasSubstr("where byte 0 of 2816 is next"));
  a.part.offset = ~uint64_t{0};
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent"));
  a.part.offset = 0;
  a.part.data.resize(2817);
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent 2817 bytes at 0"));
  a.part.data.clear();
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent 0 bytes"));
}

TEST(ExchangeRefusalTest, UnknownSender) {
  for (const int32_t sender : {-1, 3}) {
    Receiving a;
    a.part.sender = sender;
    EXPECT_THAT(a.refusal(), HasSubstr("unknown member"));
  }
  Receiving a;
  a.part.sender = 0;
  EXPECT_THAT(a.refusal(), HasSubstr("in the name of this member"));
}

TEST(ExchangeRefusalTest, WhatIsNotItsToSend) {
  for (const int32_t segment : {-1, 9}) {
    Receiving a;
    a.part.segment = segment;
    EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent a part of segment"));
  }
  Receiving a;
  a.part.kind = PartKind::kMean;
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent a part of segment 0")) << "it is a's";
  a.part.kind = PartKind::kContribution;
  a.part.sender = 2;
  EXPECT_THAT(a.refusal(), HasSubstr("island 'c' sent a part")) << "it abstains";
}

TEST(ExchangeRefusalTest, MeanWhereAllIsGathered) {
  Receiving a(Topology::kGather);
  EXPECT_EQ(a.refusal(), "");
  a.part.kind = PartKind::kMean;
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent a part of segment 0"));
}

TEST(ExchangeRefusalTest, AnotherRunRoundOrALaterAttempt) {
  for (const swarm::Header& header :
       {swarm::Header{.term = 1, .round = 3, .attempt = 0},
        swarm::Header{.term = 1, .round = kRound, .attempt = 1},
        swarm::Header{.run = "other", .term = 1, .round = kRound, .attempt = 0}}) {
    Receiving a;
    a.part.header = header;
    EXPECT_THAT(a.refusal(), HasSubstr("came for round 4294967300, attempt 0"));
  }
}

TEST(ExchangeRefusalTest, NotANumberNamesTheSender) {
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    Receiving a(topology);
    for (int i = 0; i < 3; ++i) {  // The three chunks of segment 0.
      a.part = a.group.links.at({1, 0})[static_cast<size_t>(i)];
      if (i == 2) std::fill(a.part.data.end() - 4, a.part.data.end(), std::byte{0xFF});
      EXPECT_EQ(a.refusal(), "");
    }
    const auto worked = a.group.members[0]->work();
    ASSERT_FALSE(worked.has_value());
    EXPECT_THAT(worked.error().message,
                HasSubstr("island 'b' sent values that cannot be used in round 4294967300"));
    EXPECT_EQ(a.group.members[0]->culprit(), 1);
    EXPECT_TRUE(a.group.members[0]->is_culprit_a_contributor());
    EXPECT_FALSE(a.group.members[0]->work().value()) << "the attempt failed for good";
    EXPECT_FALSE(a.group.members[0]->complete());
    EXPECT_TRUE(a.group.members[0]->debtors().empty()) << "nothing is waited for";
  }
}

TEST(ExchangeRefusalTest, AMeanThatIsNoNumberIsItsOwnersFault) {
  Receiving a;
  while (a.work_of_b()) {
  }
  for (Part& part : a.group.links.at({1, 0})) {
    if (part.kind != PartKind::kMean) continue;
    if (part.offset + part.data.size() == part.total) {
      std::fill(part.data.end() - 4, part.data.end(), std::byte{0xFF});
    }
    a.part = part;
    EXPECT_EQ(a.refusal(), "");
  }
  Result<bool> worked = true;
  while (worked && *worked) worked = a.group.members[0]->work();
  ASSERT_FALSE(worked.has_value());
  EXPECT_EQ(a.group.members[0]->culprit(), 1);
  EXPECT_FALSE(a.group.members[0]->is_culprit_a_contributor());
}

TEST(ExchangeRefusalTest, OwnNotANumber) {
  Group group(2, 5000, "fp32", Topology::kScatter);
  group.in.values[0][4500] = NAN;
  group.connect();
  Result<bool> worked = true;
  while (worked && *worked) worked = group.members[0]->work();
  ASSERT_FALSE(worked.has_value());
  EXPECT_THAT(worked.error().message, HasSubstr("the values of island 'a' for round 4294967300"));
}

TEST(ExchangeRefusalTest, WhatADeviceRefuses) {
  Group group(2, 5000, "fp32", Topology::kGather);
  group.in.values[0][100] = NAN;
  group.on_device = true;
  group.connect();
  const auto worked = group.members[0]->work();
  ASSERT_FALSE(worked.has_value());
  EXPECT_THAT(worked.error().message,
              HasSubstr("cannot be sent: cannot encode as fp32: value 100"));
}

TEST(ExchangeRefusalTest, DebtorsAreThoseWhoOwe) {
  Receiving a;
  EXPECT_EQ(a.group.members[0]->debtors(), (std::vector<Debtor>{{1, false}}));
  EXPECT_EQ(a.group.members[2]->debtors(), (std::vector<Debtor>{{0, true}, {1, true}}));
}

TEST(EqualSharesTest, AddUpAndDifferByASegment) {
  for (const int64_t count : {0, 1, 5, 6, 7, 1000}) {
    for (const int64_t num_members : {1, 2, 3, 7}) {
      const auto shares = swarm::equal_shares(count, num_members);
      EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), count);
      EXPECT_EQ(std::ssize(shares), num_members);
      const auto [low, high] = std::ranges::minmax(shares);
      EXPECT_GE(low, 0);
      EXPECT_LE(high - low, 1);
    }
  }
}

}  // namespace
}  // namespace atl::collective
