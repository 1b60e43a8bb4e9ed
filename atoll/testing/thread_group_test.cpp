#include "atoll/testing/thread_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"
#include "atoll/swarm/rules.h"
#include "atoll/testing/mean_definition.h"

namespace atl::collective {
namespace {

using testing::HasSubstr;

RoundInputs inputs_of(const codec::Codec& codec, Topology topology, bool has_residual,
                      size_t num_members, size_t count) {
  RoundInputs in{.codec = &codec,
                 .topology = topology,
                 .sequence = 6,
                 .shares = equal_shares(count, topology, static_cast<int64_t>(num_members)),
                 .segment_values = segment_size(count, topology)};
  for (size_t rank = 0; rank < num_members; ++rank) {
    in.weights.push_back(static_cast<int64_t>(rank) * 3);  // The first abstains.
    in.values.emplace_back(count);
    if (has_residual) in.residuals.emplace_back(count);
    for (size_t i = 0; i < count; ++i) {
      in.values[rank][i] = static_cast<float>(random_normal(1, rank, i));
      if (has_residual) in.residuals[rank][i] = static_cast<float>(random_normal(2, rank, i));
    }
  }
  return in;
}

Contribution contribution_of(const RoundInputs& in, size_t rank, std::span<float> new_residual,
                             const DefinedRound& expected) {
  Contribution out{.round = 6,
                   .weight = in.weights[rank],
                   .values = in.values[rank],
                   .codec = in.codec,
                   .topology = in.topology,
                   .needs_own = true};
  if (!in.residuals.empty()) {
    out.mean_residual = in.residuals[rank];
    out.new_mean_residual = new_residual;
  }
  out.prepare = [rank, &expected](std::span<const float> mean, std::span<const float> own) {
    EXPECT_TRUE(std::ranges::equal(mean, expected.mean));
    EXPECT_TRUE(std::ranges::equal(own, expected.own[rank]));
    return sha256(std::as_bytes(mean));
  };
  return out;
}

TEST(ThreadGroupTest, EqualsTheDefinition) {
  for (const char* const name : {"fp32", "e3m0"}) {
    for (const auto& [topology, has_residual] : {std::pair(Topology::kScatter, false),
                                                 {Topology::kScatter, true},
                                                 {Topology::kGather, false}}) {
      const auto codec = codec::make_codec(name);
      const RoundInputs in = inputs_of(*codec, topology, has_residual, 3, 900'001);
      const DefinedRound expected = define_round(in);
      ThreadGroup group(3);
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
          std::vector<float> new_residual(has_residual ? in.values[rank].size() : 0);
          const auto averager = group.member(static_cast<int>(rank));
          averager->begin(contribution_of(in, rank, new_residual, expected));
          const auto commit = averager->wait(6);
          ASSERT_TRUE(commit.has_value()) << commit.error().message;
          EXPECT_THAT(commit->abstainers, testing::ElementsAre("thread-0"));
          EXPECT_EQ(commit->members.size(), 3U);
          if (has_residual) {
            EXPECT_EQ(new_residual, expected.new_residuals[rank]);
          }
        });
      }
    }
  }
}

TEST(ThreadGroupTest, ValuesThatCannotBeSentFailTheRoundForAll) {
  const auto codec = codec::make_codec("fp32");
  ThreadGroup group(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::vector<float> values(10, rank == 0 ? NAN : 1.0F);
      const auto averager = group.member(rank);
      averager->begin({.round = 1,
                       .weight = 1,
                       .values = values,
                       .codec = codec.get(),
                       .prepare = [](auto, auto) { return Digest{}; }});
      const auto commit = averager->wait(1);
      ASSERT_FALSE(commit.has_value());
      EXPECT_THAT(commit.error().message, HasSubstr("'thread-0' for round 1"));
    });
  }
}

TEST(AloneTest, EqualsAGroupOfOne) {
  const auto codec = codec::make_codec("bf16");
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    RoundInputs in = inputs_of(*codec, topology, false, 1, 300'000);
    for (const int64_t weight : {0, 5}) {
      in.weights = {weight};
      const DefinedRound expected = define_round(in);
      Alone alone;
      alone.begin(contribution_of(in, 0, {}, expected));
      const auto commit = alone.wait(6);
      ASSERT_TRUE(commit.has_value());
      EXPECT_EQ(commit->digest, sha256(std::as_bytes(std::span(expected.mean))));
      EXPECT_EQ(commit->abstainers.size(), weight == 0 ? 1U : 0U);
    }
  }
}

}  // namespace
}  // namespace atl::collective
