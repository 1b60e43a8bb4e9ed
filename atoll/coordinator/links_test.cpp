#include "atoll/coordinator/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const Links::Pair kAB{0, 1};
const Links::Pair kBC{1, 2};
const Ways kDirect{.members = {0, 1, 2}};
const Ways kThroughC{.members = {0, 1, 2}, .relays = {{0, 1, 2}}};
const std::set<int32_t> kAll{0, 1, 2};

/// A link that breaks in that round, and stands again at once.
void break_in(Links& links, int64_t round, const Ways& ways = kDirect) {
  if (links.broke(kAB)) links.mistrust(kAB, round, ways);
  links.stands(kAB);
}

TEST(LinksTest, ABrokenLinkIsClosedUntilItStandsAgain) {
  Links links;
  EXPECT_TRUE(links.broke(kAB));
  EXPECT_FALSE(links.broke(kAB)) << "the other end says it too";
  EXPECT_THAT(links.closed_in(1000), ElementsAre(kAB));
  EXPECT_TRUE(links.stands(kAB));
  EXPECT_FALSE(links.stands(kAB));
  EXPECT_THAT(links.closed_in(1000), IsEmpty());
}

TEST(LinksTest, WhatBrokeInARoundIsDoneWithoutForTwiceAsManyEachTime) {
  Links links;
  int64_t round = 0;
  for (const int64_t expected : {1, 2, 4, 8, 8}) {
    break_in(links, round);
    int64_t num_closed = 0;
    for (; !links.closed_in(round).empty(); ++round) num_closed += 1;
    EXPECT_EQ(num_closed, expected);
  }
}

TEST(LinksTest, ALinkThatCarriedARoundIsTrustedAnew) {
  Links links;
  break_in(links, 0);
  break_in(links, 1);
  links.carried(kThroughC);
  EXPECT_THAT(links.closed_in(2), ElementsAre(kAB)) << "it was not among the ways";
  links.carried(kDirect);
  EXPECT_THAT(links.closed_in(2), IsEmpty());
  break_in(links, 3);
  EXPECT_THAT(links.closed_in(3), SizeIs(1));
  EXPECT_THAT(links.closed_in(4), IsEmpty()) << "one round, as at first";
}

TEST(LinksTest, ARoundThatDidWithoutTheLinkSaysNothingOfIt) {
  Links links;
  break_in(links, 0, kThroughC);
  break_in(links, 0, {.members = {0, 2}});
  EXPECT_THAT(links.closed_in(0), IsEmpty());
}

TEST(LinksTest, ARoundCountsOnce) {
  Links links;
  break_in(links, 5);
  break_in(links, 5);
  EXPECT_THAT(links.closed_in(5), SizeIs(1));
  EXPECT_THAT(links.closed_in(6), IsEmpty());
}

TEST(LinksTest, WhoIsForgottenHasNoLinks) {
  Links links;
  links.broke(kAB);
  links.mistrust(kAB, 0, kDirect);
  links.broke(kBC);
  links.forget_reports_of(0);
  EXPECT_THAT(links.closed_in(0), ElementsAre(kAB, kBC)) << "mistrusted still";
  EXPECT_THAT(links.closed_in(1), ElementsAre(kBC));
  links.forget(0);
  EXPECT_THAT(links.closed_in(0), ElementsAre(kBC));
}

TEST(LinksTest, WhatBecomesOfAPairIsToldWhereItIsNew) {
  Links links;
  links.broke(kAB);
  const auto relayed = links.news(0, kThroughC, kAll);
  ASSERT_THAT(relayed, SizeIs(1));
  EXPECT_EQ(relayed[0].pair, kAB);
  EXPECT_EQ(relayed[0].relay, (Relay{0, 1, 2}));
  EXPECT_THAT(links.news(1, kThroughC, kAll), IsEmpty());
  const auto parted = links.news(2, {.members = {0, 2}}, kAll);
  ASSERT_THAT(parted, SizeIs(1));
  EXPECT_FALSE(parted[0].relay.has_value());
  EXPECT_THAT(links.news(3, {.members = {0, 2}}, kAll), IsEmpty());
  links.stands(kAB);
  links.broke(kAB);
  EXPECT_THAT(links.news(4, {.members = {0, 2}}, kAll), SizeIs(1)) << "it broke anew";
}

TEST(LinksTest, OfWhoDoesNotWantToTakePartNothingIsTold) {
  Links links;
  links.broke(kAB);
  EXPECT_THAT(links.news(0, {.members = {0, 2}}, {0, 2}), IsEmpty());
  EXPECT_THAT(links.news(0, {.members = {2}}, kAll), IsEmpty()) << "neither takes part";
}

}  // namespace
}  // namespace atl::swarm
