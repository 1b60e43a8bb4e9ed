#include "atoll/swarm/leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

namespace atl::swarm {
namespace {

using Names = std::vector<int32_t>;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int64_t> listed(std::span<const Units> list) {
  std::vector<int64_t> out;
  for (const Units& units : list) {
    for (int64_t i = 0; i < units.count; ++i) out.push_back(units.at(i));
  }
  return out;
}

/// As the global batches have them: unit u is place u mod 3 of step u / 3.
TEST(LeaseBookTest, WithoutFaultsEachIslandHasItsPlaceInEveryBatch) {
  LeaseBook book;
  const Names names = {0, 1, 2};
  for (int period = 0; period < 4; ++period) {
    const auto granted = book.grant(names, 5);
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<int64_t> expected;
      for (int step = 5 * period; step < 5 * (period + 1); ++step)
        expected.push_back(3 * step + rank);
      EXPECT_EQ(listed(granted[static_cast<size_t>(rank)]), expected);
    }
  }
  EXPECT_EQ(book.next(), 60);
}

TEST(LeaseBookTest, WhatWasLostIsGivenOutFirst) {
  LeaseBook book;
  book.grant(Names{0, 1}, 4);  // b: 1, 3, 5, 7
  EXPECT_EQ(num_units(book.consume(1, 1)), 1);
  book.revoke(1);
  EXPECT_EQ(listed(book.returned()), (std::vector<int64_t>{3, 5, 7}));
  const auto granted = book.grant(Names{0, 2}, 3);
  EXPECT_THAT(listed(granted[0]), ElementsAre(3, 7, 9));
  EXPECT_THAT(listed(granted[1]), ElementsAre(5, 8, 10));
  EXPECT_THAT(book.returned(), IsEmpty());
}

TEST(LeaseBookTest, AnOlderSnapshotConsumesNothingMore) {
  LeaseBook book;
  book.grant(Names{0}, 10);
  EXPECT_EQ(num_units(book.consume(0, 6)), 6);
  EXPECT_EQ(num_units(book.consume(0, 4)), 0);
  EXPECT_EQ(num_units(book.consume(0, 7)), 1);
  EXPECT_FALSE(book.is_possible(0, 11));
  EXPECT_FALSE(book.is_possible(0, -1));
  EXPECT_FALSE(book.is_possible(1, 1));
  EXPECT_TRUE(book.is_possible(1, 0));
}

TEST(LeaseBookTest, WhatAMemberHasNotHeardOfIsKnown) {
  LeaseBook book;
  book.grant(Names{0, 1}, 2);
  book.grant(Names{0, 1}, 3);
  EXPECT_EQ(listed(book.behind(0, 2)), (std::vector<int64_t>{4, 6, 8}));
  book.consume(0, 1);
  EXPECT_EQ(listed(book.behind(0, 2)), (std::vector<int64_t>{4, 6, 8}));
  EXPECT_THAT(book.behind(0, 5), IsEmpty());
  EXPECT_THAT(book.behind(7, 0), IsEmpty());
}

TEST(LeaseBookTest, WhatIsVoidIsGivenOutAgainTheLowestFirst) {
  LeaseBook book(10);
  book.grant(std::array{0, 1}, 4);  // 10, 12, 14, 16 and 11, 13, 15, 17.
  book.consume(0, 1);
  const auto units = book.consume(1, 3);
  EXPECT_EQ(book.num_consumed(), 14);
  EXPECT_EQ(book.num_open(0, 3), 2);
  EXPECT_EQ(book.num_open(7, 3), 3);
  book.give_back(units);
  book.revoke_all();
  EXPECT_EQ(book.num_consumed(), 11);
  EXPECT_EQ(book, LeaseBook(11)) << "nothing is left of it";
  book.grant(std::array{2, 3}, 2);  // 11, 13 and 12, 14.
  book.consume(3, 1);
  book.revoke_all();
  EXPECT_EQ(book.next(), 13);
  EXPECT_THAT(book.returned(), ElementsAre(Units{11, 1, 1}));
  book.revoke_all(12);  // 11 is in a checkpoint.
  EXPECT_EQ(book, LeaseBook(13));
}

/// Whatever happens, each unit is consumed once, held by one member, returned, or still new.
TEST(LeaseBookTest, NoUnitIsLostOrGivenTwice) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int64_t below) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
    };
    LeaseBook book;
    std::set<int64_t> consumed;
    std::map<int32_t, std::vector<int64_t>> given;  // To each member, since it came.
    for (int turn = 0; turn < 60; ++turn) {
      const auto name = static_cast<int32_t>(draw(5));
      const int64_t what = draw(4);
      if (what < 2) {
        Names names;
        for (int32_t member = 0; member < 5; ++member) {
          if (draw(2) == 0) names.push_back(member);
        }
        if (names.empty()) continue;
        const auto granted = book.grant(names, draw(7));
        for (size_t i = 0; i < names.size(); ++i) {
          for (const int64_t unit : listed(granted[i])) given[names[i]].push_back(unit);
        }
      } else if (what == 2 && book.members().contains(name)) {
        const Leases before = book.members().at(name);
        const int64_t trained = draw(before.num_granted + 1);
        book.consume(name, trained);
        for (int64_t i = before.num_consumed; i < trained; ++i) {
          EXPECT_TRUE(consumed.insert(given[name][static_cast<size_t>(i)]).second);
        }
      } else if (what == 3 && draw(3) == 0) {
        book.revoke(name);
        given.erase(name);
      }
      std::multiset<int64_t> all(consumed.begin(), consumed.end());
      for (const int64_t unit : listed(book.returned())) all.insert(unit);
      for (const auto& [member, leases] : book.members()) {
        EXPECT_EQ(static_cast<int64_t>(listed(leases.rest).size()),
                  leases.num_granted - leases.num_consumed);
        for (const int64_t unit : listed(leases.rest)) all.insert(unit);
      }
      ASSERT_EQ(static_cast<int64_t>(all.size()), book.next());
      int64_t expected = 0;
      for (const int64_t unit : all) ASSERT_EQ(unit, expected++);
    }
  }
}

}  // namespace
}  // namespace atl::swarm
