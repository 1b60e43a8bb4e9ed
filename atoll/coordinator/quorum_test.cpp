#include "atoll/coordinator/quorum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/coordinator/events.h"
#include "atoll/coordinator/recent_events.h"

namespace atl::swarm {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

/// A run of two fragments, of which so many have had a round.
Book book_with(int32_t num_held) {
  Book book;
  book.apply(TermBegan{1});
  book.apply(RunBegan{"r1", 0, 4, {}, "text"});
  for (int32_t i = 0; i < num_held; ++i) {
    book.apply(Committed{.index = static_cast<uint64_t>(i), .held = {.fragment = i, .round = i}});
  }
  return book;
}

TEST(QuorumTest, ThoseWhoHoldTheStateCompleteTheFirstPeriod) {
  Quorum quorum({.min_replicas = 3, .num_fragments = 2});
  quorum.begin(2);
  EXPECT_EQ(quorum.least(book_with(0)), 2);
  EXPECT_EQ(quorum.least(book_with(1)), 2);
  EXPECT_EQ(quorum.least(book_with(2)), 3);
  quorum.begin(4);
  EXPECT_EQ(quorum.least(book_with(0)), 3);
  quorum.begin(0);
  EXPECT_EQ(quorum.least(book_with(0)), 3) << "not known";
}

TEST(QuorumTest, OneIsNeededAtLeast) {
  EXPECT_EQ(Quorum({.min_replicas = 0}).least(book_with(2)), 1);
}

TEST(QuorumTest, WhoEndTogetherWaitForEachOtherWhenTheyStop) {
  EXPECT_EQ(Quorum({.min_replicas = 3}).least_when_stopping(book_with(2)), 1);
  EXPECT_EQ(Quorum({.min_replicas = 3, .ends_together = true}).least_when_stopping(book_with(2)),
            3);
}

TEST(QuorumTest, SaysOnceThatRoundsWaitAndThatTheyGoOn) {
  Quorum quorum({.min_replicas = 3});
  EXPECT_FALSE(quorum.note(3, false));
  EXPECT_THAT(quorum.note(2, true).value().sentence,
              HasSubstr("WARNING: rounds wait until more have come: 2 of"));
  EXPECT_FALSE(quorum.note(1, true));
  EXPECT_TRUE(quorum.waits());
  EXPECT_EQ(quorum.why_waits(1), "rounds wait: 1 of at least 3 islands (swarm.min_replicas)");
  EXPECT_EQ(quorum.note(3, false).value().sentence, "rounds go on with 3 of at least 3 islands");
  quorum.note(2, true);
  quorum.begin(2);
  EXPECT_FALSE(quorum.waits()) << "whoever is here begins";
}

TEST(RecentEventsTest, KeepsTheLastOnesWithTheirTimes) {
  const Time began = Time{} + std::chrono::seconds(7);
  RecentEvents events(began);
  for (int i = 0; i < 150; ++i) {
    events.add(IslandReady{std::to_string(i)}, began + std::chrono::seconds(i));
  }
  ASSERT_THAT(events.all(), SizeIs(RecentEvents::kMost));
  EXPECT_EQ(events.all().front().line, "island '50' is ready");
  EXPECT_EQ(events.all().front().time_s, 50);
  EXPECT_EQ(events.all().back().line, "island '149' is ready");
}

}  // namespace
}  // namespace atl::swarm
