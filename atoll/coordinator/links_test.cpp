#include "atoll/coordinator/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using std::chrono::seconds;
using Members = std::vector<int32_t>;

const Links::Pair kAB{0, 1};
const Links::Pair kBC{1, 2};
const Members kThree{0, 1, 2};
const Members kWithoutB{0, 2};
const std::set<int32_t> kAll{0, 1, 2};
constexpr Time kNow{};

/// A link that breaks in that round, and stands again at once.
bool break_in(Links& links, int64_t round, const Members& members = kThree) {
  const bool is_new = links.broke(0, 1, kNow);
  const bool is_mistrusted = is_new && links.mistrust(kAB, round, members);
  links.stands(0, 1, net::Way::kDirect);
  return is_mistrusted;
}

TEST(LinksTest, ABrokenLinkIsClosedUntilItStandsAgain) {
  Links links;
  EXPECT_TRUE(links.broke(0, 1, kNow));
  EXPECT_FALSE(links.broke(0, 1, kNow)) << "the other end says it too";
  EXPECT_THAT(links.closed_in(1000), ElementsAre(kAB));
  EXPECT_TRUE(links.stands(0, 1, net::Way::kDirect));
  EXPECT_FALSE(links.stands(0, 1, net::Way::kDirect));
  EXPECT_THAT(links.closed_in(1000), IsEmpty());
}

TEST(LinksTest, WhatBothEndsTellIsOneBreakInWhateverOrder) {
  Links links;
  EXPECT_TRUE(links.broke(0, 1, kNow));
  EXPECT_TRUE(links.stands(0, 1, net::Way::kDirect));
  EXPECT_FALSE(links.broke(1, 0, kNow)) << "the same one, told later";
  EXPECT_FALSE(links.is_broken(kAB)) << "the other end said already that it is over";
  EXPECT_FALSE(links.stands(1, 0, net::Way::kDirect));
  EXPECT_TRUE(links.broke(1, 0, kNow)) << "a second one";
  EXPECT_FALSE(links.broke(1, 0, kNow)) << "dialled again, in vain";
  EXPECT_FALSE(links.broke(0, 1, kNow));
  EXPECT_TRUE(links.stands(0, 1, net::Way::kDirect));
}

TEST(LinksTest, WhoNeverSawThatBreakDoesNotEndIt) {
  Links links;
  links.broke(0, 1, kNow);
  EXPECT_FALSE(links.stands(1, 0, net::Way::kDirect));
  EXPECT_TRUE(links.is_broken(kAB));
}

TEST(LinksTest, WhatBrokeLatelyMayMend) {
  Links links;
  links.broke(0, 1, kNow);
  EXPECT_TRUE(links.may_mend(kThree, kNow + seconds(1)));
  EXPECT_FALSE(links.may_mend(kWithoutB, kNow + seconds(1))) << "of no matter to them";
  EXPECT_FALSE(links.may_mend(kThree, kNow + seconds(2)));
  links.stands(0, 1, net::Way::kDirect);
  EXPECT_FALSE(links.may_mend(kThree, kNow)) << "it has";
}

TEST(LinksTest, WhatBreaksInARoundAgainIsDoneWithoutForTwiceAsManyEachTime) {
  Links links;
  EXPECT_FALSE(break_in(links, 0));
  EXPECT_THAT(links.closed_in(0), IsEmpty()) << "once is an accident";
  int64_t round = 0;
  for (const int64_t expected : {1, 2, 4, 8, 8}) {
    EXPECT_TRUE(break_in(links, round));
    int64_t num_closed = 0;
    for (; !links.closed_in(round).empty(); ++round) num_closed += 1;
    EXPECT_EQ(num_closed, expected);
  }
}

TEST(LinksTest, ALinkThatCarriedARoundIsTrustedAnew) {
  Links links;
  break_in(links, 0);
  break_in(links, 1);
  links.carried(kWithoutB);
  EXPECT_THAT(links.closed_in(1), ElementsAre(kAB)) << "it was not among theirs";
  links.carried(kThree);
  EXPECT_THAT(links.closed_in(1), IsEmpty());
  EXPECT_FALSE(break_in(links, 3)) << "as at first";
}

TEST(LinksTest, ThroughARelayItIsTrustedAtOnce) {
  Links links;
  break_in(links, 0);
  break_in(links, 1);
  links.stands(0, 1, net::Way::kPunched);
  EXPECT_THAT(links.closed_in(1), SizeIs(1)) << "the same path";
  links.stands(0, 1, net::Way::kRelayed);
  EXPECT_THAT(links.closed_in(1), IsEmpty());
  break_in(links, 1);
  links.stands(0, 1, net::Way::kRelayed);
  EXPECT_THAT(links.closed_in(2), SizeIs(1)) << "it is not the path that is to blame";
}

TEST(LinksTest, ARoundThatDidWithoutTheLinkSaysNothingOfIt) {
  Links links;
  break_in(links, 0, kWithoutB);
  break_in(links, 0, kWithoutB);
  EXPECT_THAT(links.closed_in(0), IsEmpty());
}

TEST(LinksTest, WhoIsForgottenHasNoLinks) {
  Links links;
  for (int i = 0; i < 2; ++i) break_in(links, 0);
  links.broke(0, 1, kNow);
  links.broke(1, 2, kNow);
  links.forget_reports_of(0);
  EXPECT_THAT(links.closed_in(0), ElementsAre(kAB, kBC)) << "mistrusted still";
  EXPECT_THAT(links.closed_in(1), ElementsAre(kBC));
  links.forget(0);
  EXPECT_THAT(links.closed_in(0), ElementsAre(kBC));
}

TEST(LinksTest, WhoIsLeftOutIsToldWhereItIsNew) {
  Links links;
  links.broke(0, 1, kNow);
  EXPECT_THAT(links.news(0, kWithoutB, kAll), ElementsAre(kAB));
  EXPECT_THAT(links.news(1, kWithoutB, kAll), IsEmpty());
  links.stands(0, 1, net::Way::kDirect);
  links.broke(0, 1, kNow);
  EXPECT_THAT(links.news(2, kWithoutB, kAll), SizeIs(1)) << "it broke anew";
}

TEST(LinksTest, OfWhoDoesNotWantToTakePartNothingIsTold) {
  Links links;
  links.broke(0, 1, kNow);
  EXPECT_THAT(links.news(0, kWithoutB, {0, 2}), IsEmpty());
  EXPECT_THAT(links.news(0, {2}, kAll), IsEmpty()) << "neither takes part";
}

}  // namespace
}  // namespace atl::swarm
