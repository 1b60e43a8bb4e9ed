// A member vanishes in the middle of a round: the others go on without it.
#include <gtest/gtest.h>

#include "atoll/testing/exchange_group.h"

namespace atl::collective {
namespace {

constexpr size_t kMembers = 4;

/// A group of which one member is lost; the others hear of the next attempt one by one.
class Attempts {
 public:
  Attempts(const std::string& codec, Topology topology, uint64_t seed)
      : group_(kMembers, 12'000, codec, topology, seed), seed_(seed), attempts_(kMembers, 0) {
    if (topology == Topology::kScatter && seed % 2 == 0) group_.add_residuals();
    if (seed % 3 == 0) group_.in.weights[draw(kMembers)] = 0;
    leaves_out_ = seed % 4 == 1;
    group_.connect();
  }

  void run() {
    const uint64_t turns = draw(400);
    for (uint64_t turn = 0; turn < turns; ++turn) take_turn();
    lost_ = draw(kMembers);
    for (size_t number = 0; number < kMembers; ++number) {
      if (number != lost_) survivors_.push_back(number);
    }
    define_rest();
    // Its links break: what waited on them is gone.
    std::erase_if(group_.links, [&](const auto& entry) {
      const auto& [from, to] = entry.first;
      return std::cmp_equal(from, lost_) || std::cmp_equal(to, lost_);
    });
    for (size_t unaware = survivors_.size(); unaware > 0;) {
      for (uint64_t turn = draw(60); turn > 0; --turn) take_turn();
      if (reopen(survivors_[draw(survivors_.size())])) unaware -= 1;
    }
    while (take_all_turns()) {
    }
  }

  void expect_the_mean_of_the_rest() {
    const DefinedRound expected = define_round(rest_);
    for (size_t rank = 0; rank < survivors_.size(); ++rank) {
      const Exchange& member = *group_.members[survivors_[rank]];
      ASSERT_TRUE(member.complete()) << member.debtors().size() << " owe something";
      ASSERT_TRUE(std::ranges::equal(member.mean(), expected.mean));
      ASSERT_TRUE(std::ranges::equal(member.own(), expected.own[rank]));
      double sum = 0;
      for (const size_t other : survivors_) sum += group_.members[other]->measures().squares[rank];
      double norm = 0;
      for (const float value : expected.own[rank]) norm += static_cast<double>(value) * value;
      ASSERT_NEAR(sum, norm, 1e-9 * norm);
      if (!rest_.residuals.empty()) {
        ASSERT_EQ(group_.new_residuals[survivors_[rank]], expected.new_residuals[rank]);
      }
    }
  }

  void expect_that_nothing_came_twice() const {
    for (const auto& [what, count] : num_sent_) {
      EXPECT_EQ(count, 1) << "segment " << std::get<2>(what);
    }
  }

 private:
  uint64_t draw(uint64_t end) { return random_bits(seed_, 17, num_draws_++) % end; }

  bool work(size_t number) {
    if (survivors_.empty() || number != lost_) {
      const auto worked = group_.members[number]->work(draw(3) != 0);
      EXPECT_TRUE(worked.has_value()) << worked.error().message;
      for (const Outgoing& outgoing : group_.members[number]->take_outgoing()) {
        const auto& part = outgoing.part;
        if (part.kind == PartKind::kContribution) {
          num_sent_[{part.sender, outgoing.to, part.segment}] += 1;
        }
        if (survivors_.empty() || std::cmp_not_equal(outgoing.to, lost_)) group_.cut(outgoing);
      }
      return worked.has_value() && *worked;
    }
    return false;
  }

  /// What a member is sent of an attempt that it does not know of waits.
  bool deliver(std::pair<int32_t, int32_t> link) {
    auto& queue = group_.links[link];
    const auto to = static_cast<size_t>(link.second);
    if (queue.empty() || queue.front().header.attempt > attempts_[to]) return false;
    const auto received = group_.members[to]->receive(queue.front());
    EXPECT_TRUE(received.has_value()) << received.error().message;
    queue.pop_front();
    return true;
  }

  void take_turn() {
    if (draw(2) == 0) {
      work(draw(kMembers));
    } else {
      deliver({static_cast<int32_t>(draw(kMembers)), static_cast<int32_t>(draw(kMembers))});
    }
  }

  bool take_all_turns() {
    bool any = false;
    for (size_t number = 0; number < kMembers; ++number) {
      while (work(number)) any = true;
    }
    for (const size_t from : survivors_) {
      for (const size_t to : survivors_) {
        while (deliver({static_cast<int32_t>(from), static_cast<int32_t>(to)})) any = true;
      }
    }
    return any;
  }

  /// One of those who are left may abstain from now on.
  void define_rest() {
    rest_ = group_.in;
    if (leaves_out_) rest_.weights[survivors_[draw(survivors_.size())]] = 0;
    const std::vector<int64_t> weights = rest_.weights;
    rest_.values.clear();
    rest_.weights.clear();
    rest_.residuals.clear();
    for (const size_t number : survivors_) {
      rest_.values.push_back(group_.in.values[number]);
      rest_.weights.push_back(weights[number]);
      if (!group_.in.residuals.empty()) rest_.residuals.push_back(group_.in.residuals[number]);
    }
    rest_.shares = swarm::equal_shares(group_.num_segments(), std::ssize(survivors_));
  }

  bool reopen(size_t number) {
    if (std::exchange(attempts_[number], 1) == 1) return false;
    Exchange::Plan plan{
        .header = {.run = "", .term = 1, .round = kRound, .attempt = 1},
        .rank = static_cast<int32_t>(std::ranges::find(survivors_, number) - survivors_.begin()),
        .weights = rest_.weights,
        .shares = rest_.shares,
        .segment_values = rest_.segment_values};
    for (const size_t survivor : survivors_) {
      plan.numbers.push_back(static_cast<int32_t>(survivor));
      plan.members.push_back(group_.names[survivor]);
    }
    group_.members[number]->reopen(std::move(plan));
    return true;
  }

  Group group_;
  uint64_t seed_;
  uint64_t num_draws_ = 0;
  size_t lost_ = 0;
  std::vector<size_t> survivors_;  // Empty until one is lost.
  RoundInputs rest_;
  bool leaves_out_ = false;
  std::vector<int32_t> attempts_;  // The one that each member knows of.
  std::map<std::tuple<int32_t, int32_t, int32_t>, int> num_sent_;
};

class AttemptsTest : public testing::TestWithParam<std::tuple<std::string, Topology>> {};

TEST_P(AttemptsTest, TheOthersHoldTheirMeanAndSendNoContributionTwice) {
  const auto& [codec, topology] = GetParam();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Attempts attempts(codec, topology, seed);
    attempts.run();
    attempts.expect_the_mean_of_the_rest();
    attempts.expect_that_nothing_came_twice();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, AttemptsTest,
                         testing::Combine(testing::Values("fp32", "int8"),
                                          testing::Values(Topology::kScatter, Topology::kGather)));

}  // namespace
}  // namespace atl::collective
