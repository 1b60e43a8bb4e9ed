#include "atoll/collective/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <numeric>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/swarm/rules.h"

namespace atl::collective {
namespace {

using swarm::Part;
using swarm::PartKind;
using testing::HasSubstr;

constexpr swarm::Header kHeader{.run = "", .term = 1, .round = 4, .attempt = 0};

struct Group {
  Group(size_t num_members, size_t count, const std::string& codec_name, uint64_t seed = 1)
      : codec(codec::make_codec(codec_name)) {
    for (size_t rank = 0; rank < num_members; ++rank) {
      names.push_back(std::string(1, static_cast<char>('a' + rank)));
      weights.push_back(static_cast<int64_t>(1 + random_bits(seed, 1, rank) % 1000));
      auto& mine = values.emplace_back(count);
      for (size_t i = 0; i < count; ++i) {
        mine[i] = static_cast<float>(random_normal(seed, 2 + rank, i));
      }
    }
    const auto shares =
        swarm::equal_shares(static_cast<int64_t>(count), static_cast<int64_t>(num_members));
    for (size_t rank = 0; rank < num_members; ++rank) {
      members.push_back(
          std::make_unique<Exchange>(Exchange::Plan{.header = kHeader,
                                                    .rank = static_cast<int32_t>(rank),
                                                    .members = names,
                                                    .weights = weights,
                                                    .shares = shares},
                                     *codec, values[rank]));
    }
  }

  /// Runs the exchange; `choose(n)` picks which of n links delivers its next chunk.
  void run(size_t chunk, const std::function<size_t(size_t)>& choose) {
    for (auto& member : members) {
      ASSERT_TRUE(member->start().has_value());
      collect(*member, chunk);
    }
    while (true) {
      std::vector<std::deque<std::pair<int32_t, Part>>*> busy;
      for (auto& [link, queue] : links) {
        if (!queue.empty()) busy.push_back(&queue);
      }
      if (busy.empty()) return;
      auto& queue = *busy[choose(busy.size())];
      const auto [to, part] = queue.front();
      queue.pop_front();
      Exchange& member = *members[static_cast<size_t>(to)];
      const auto result = member.receive(part);
      ASSERT_TRUE(result.has_value()) << result.error().message;
      collect(member, chunk);
    }
  }
  void collect(Exchange& member, size_t chunk) {
    for (const Outgoing& outgoing : member.take_outgoing()) {
      for (size_t offset = 0; offset < outgoing.blob->size(); offset += chunk) {
        Part part = outgoing.part;
        part.offset = offset;
        const auto data = std::span(*outgoing.blob)
                              .subspan(offset, std::min(chunk, outgoing.blob->size() - offset));
        part.data.assign(data.begin(), data.end());
        links[{part.sender, outgoing.to}].emplace_back(outgoing.to, part);
      }
    }
  }
  /// The mean as the protocol defines it, in one place and one pass.
  std::vector<float> straightforward() const {
    const size_t count = values[0].size();
    std::vector<float> mean(count);
    const auto factors = coefficients(weights);
    const auto shares = members[0]->plan().shares;
    size_t begin = 0;
    for (const int64_t share : shares) {
      const auto size = static_cast<size_t>(share);
      const std::span<float> part = std::span(mean).subspan(begin, size);
      const auto pass = [&](std::span<const float> in, std::span<float> out) {
        Bytes bytes;
        codec->encode(in, bytes);
        codec->decode(bytes, out);
      };
      for (size_t rank = 0; rank < values.size(); ++rank) {
        std::vector<float> decoded(size);
        pass(std::span(values[rank]).subspan(begin, size), decoded);
        for (size_t i = 0; i < size; ++i) part[i] += factors[rank] * decoded[i];
      }
      pass(std::vector<float>(part.begin(), part.end()), part);
      begin += size;
    }
    return mean;
  }

  std::unique_ptr<codec::Codec> codec;
  std::vector<std::string> names;
  std::vector<int64_t> weights;
  std::vector<std::vector<float>> values;
  std::vector<std::unique_ptr<Exchange>> members;
  std::map<std::pair<int32_t, int32_t>, std::deque<std::pair<int32_t, Part>>> links;
};

using Case = std::tuple<size_t, size_t, std::string>;
class ExchangeTest : public testing::TestWithParam<Case> {};

TEST_P(ExchangeTest, EqualsTheStraightforwardMeanInAnyOrderOfArrival) {
  const auto& [num_members, count, codec] = GetParam();
  for (uint64_t order = 0; order < 4; ++order) {
    Group group(num_members, count, codec);
    uint64_t draws = 0;
    group.run(1000, [&](size_t n) { return random_bits(order, 9, draws++) % n; });
    const auto expected = group.straightforward();
    for (const auto& member : group.members) {
      ASSERT_TRUE(member->complete()) << member->debtors();
      ASSERT_TRUE(std::ranges::equal(member->mean(), expected));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ExchangeTest,
                         testing::Combine(testing::Values(1, 2, 3, 5),
                                          testing::Values(0, 1, 1023, 1025, 20'000),
                                          testing::Values("fp32", "bf16")));

TEST(EqualSharesTest, AddUpAndDifferByABlock) {
  for (const int64_t count : {0, 1, 1023, 1024, 1025, 4'000'000}) {
    for (const int64_t num_members : {1, 2, 3, 7}) {
      const auto shares = swarm::equal_shares(count, num_members);
      EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), count);
      EXPECT_EQ(std::ssize(shares), num_members);
      const auto [low, high] = std::ranges::minmax(shares);
      EXPECT_GE(low, 0);
      EXPECT_LT(high - low, 2 * 1024);
    }
  }
}

TEST(CoefficientsTest, AreTheSharesOfTheTokens) {
  EXPECT_THAT(coefficients(std::vector<int64_t>{1, 3}), testing::ElementsAre(0.25F, 0.75F));
  EXPECT_THAT(coefficients(std::vector<int64_t>{7}), testing::ElementsAre(1.0F));
}

/// Member a of two, and what b would send it.
struct Receiving {
  Receiving() : group(2, 4096, "fp32") {
    for (auto& member : group.members) {
      EXPECT_TRUE(member->start().has_value());
      group.collect(*member, 3000);
    }
    part = group.links.at({1, 0}).front().second;
  }
  std::string refusal() {
    const auto result = group.members[0]->receive(part);
    return result ? "" : result.error().message;
  }
  Group group;
  Part part;
};

TEST(ExchangeRefusalTest, WrongLength) {
  Receiving a;
  a.part.total -= 4;
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent a part of 8204 bytes where 8208 are due"));
}

TEST(ExchangeRefusalTest, Twice) {
  Receiving a;
  EXPECT_EQ(a.refusal(), "");
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent bytes 0 to 3000 of share 0 twice"));
}

TEST(ExchangeRefusalTest, OutOfRange) {
  Receiving a;
  a.part.offset = 8000;
  EXPECT_THAT(a.refusal(), HasSubstr("where byte 0 of 8208 is next"));
  a.part.offset = 0;
  a.part.data.resize(9000);
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent 9000 bytes at 0"));
  a.part.data.clear();
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent 0 bytes"));
}

TEST(ExchangeRefusalTest, Overflow) {
  Receiving a;
  a.part.offset = ~uint64_t{0};
  EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent"));
}

TEST(ExchangeRefusalTest, UnknownSender) {
  for (const int32_t sender : {-1, 0, 2}) {
    Receiving a;
    a.part.sender = sender;
    EXPECT_THAT(a.refusal(), HasSubstr("unknown member"));
  }
}

TEST(ExchangeRefusalTest, AnothersShare) {
  for (const int32_t share : {-1, 1, 7}) {
    Receiving a;
    a.part.share = share;
    EXPECT_THAT(a.refusal(), HasSubstr("island 'b' sent a part of share"));
  }
}

TEST(ExchangeRefusalTest, StaleTermRoundOrAttempt) {
  for (const swarm::Header& header :
       {swarm::Header{.term = 0, .round = 4, .attempt = 0},
        swarm::Header{.term = 1, .round = 3, .attempt = 0},
        swarm::Header{.term = 1, .round = 4, .attempt = 1},
        swarm::Header{.run = "other", .term = 1, .round = 4, .attempt = 0}}) {
    Receiving a;
    a.part.header = header;
    EXPECT_THAT(a.refusal(), HasSubstr("came for round 4, attempt 0"));
  }
}

TEST(ExchangeRefusalTest, NotANumber) {
  Receiving a;
  auto& queue = a.group.links.at({1, 0});
  std::string refusal;
  while (!queue.empty() && refusal.empty()) {
    a.part = queue.front().second;
    queue.pop_front();
    if (queue.empty()) std::fill(a.part.data.end() - 4, a.part.data.end(), std::byte{0xFF});
    refusal = a.refusal();
  }
  EXPECT_THAT(refusal, HasSubstr("island 'b' sent values that cannot be used in round 4"));
}

TEST(ExchangeRefusalTest, OwnNotANumber) {
  Group group(2, 5000, "fp32");
  group.values[0][4500] = NAN;
  const auto result = group.members[0]->start();
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message, HasSubstr("the values of island 'a' for round 4"));
}

}  // namespace
}  // namespace atl::collective
