#include "atoll/coordinator/seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/coordinator/roster.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using State = Seat::State;

constexpr Time kNow{};
const SuspicionOptions kSuspicion{};

Seat seat_in(State state) { return {state, 1, kSuspicion, kNow}; }

TEST(SeatTest, WhoIsHeardAgainIsBehind) {
  Seat seat = seat_in(State::kActive);
  EXPECT_FALSE(seat.hear(kNow));
  seat.put_away("reset", kNow);
  EXPECT_FALSE(seat.is_here());
  EXPECT_TRUE(seat.hear(kNow));
  EXPECT_EQ(seat.state(), State::kBehind);
  EXPECT_TRUE(seat.is_here());
  EXPECT_FALSE(seat.is_live());
}

TEST(SeatTest, OnlyWhoIsHereIsMissedWhenItIsSilent) {
  for (const State state : {State::kBehind, State::kActive, State::kReturning, State::kAway,
                            State::kLeaving, State::kLeft}) {
    const bool is_expected = state == State::kBehind || state == State::kActive;
    EXPECT_FALSE(seat_in(state).is_silent(kNow));
    EXPECT_EQ(seat_in(state).is_silent(kNow + seconds(60)), is_expected);
  }
  Seat seat = seat_in(State::kActive);
  seat.forgive(kNow + seconds(60));
  EXPECT_FALSE(seat.is_silent(kNow + seconds(60)));
}

TEST(SeatTest, WhoComesBackGoesOnWhereItsCoordinatorWasAway) {
  Seat away = seat_in(State::kAway);
  away.come_back(5, kNow);
  EXPECT_EQ(away.state(), State::kBehind) << "rounds were decided without it";
  Seat returning = seat_in(State::kReturning);
  returning.come_back(5, kNow);
  EXPECT_EQ(returning.state(), State::kActive);
  EXPECT_EQ(returning.first_round(), 5);
  EXPECT_FALSE(returning.is_new());
  Seat newcomer = seat_in(State::kReturning);
  newcomer.come_back(-1, kNow);
  EXPECT_EQ(newcomer.state(), State::kBehind);
  EXPECT_EQ(newcomer.first_round(), 0);
  EXPECT_TRUE(newcomer.is_new());
}

TEST(SeatTest, WhatItHasNeverFalls) {
  Seat seat = seat_in(State::kActive);
  seat.report({.step = 9, .num_trained = 8, .caught_up = 3}, kNow + seconds(1));
  seat.report({.step = 9, .num_trained = 6, .caught_up = 2}, kNow + seconds(2));
  EXPECT_EQ(seat.num_trained(), 8);
  EXPECT_EQ(seat.trained_at(), kNow + seconds(1)) << "since then it took no step";
  EXPECT_EQ(seat.progress().step, 9);
  EXPECT_TRUE(seat.is_level(3));
  EXPECT_TRUE(seat.lacks_any(4));
  seat.report({.step = 5, .num_trained = 8, .caught_up = 3}, kNow + seconds(3));
  EXPECT_EQ(seat.trained_at(), kNow + seconds(3)) << "it computes steps again";
}

TEST(SeatTest, WhoComesBackWholeIsWaitedForInAllRounds) {
  Seat seat = seat_in(State::kActive);
  seat.report({.step = 9, .num_trained = 8, .caught_up = 3}, kNow);
  seat.put_away("killed", kNow);
  seat.come_back_whole(2, kNow + seconds(1));
  EXPECT_EQ(seat.state(), State::kActive);
  EXPECT_EQ(seat.first_round(), 0);
  EXPECT_FALSE(seat.is_new());
  EXPECT_TRUE(seat.has(1));
  EXPECT_FALSE(seat.has(2)) << "its new process has fewer results";
  EXPECT_EQ(seat.num_trained(), 8);
}

TEST(SeatTest, AResultIsCaughtUpWithInItsTurn) {
  Seat seat = seat_in(State::kActive);
  seat.note_commit(1);
  EXPECT_TRUE(seat.is_level(0)) << "it lacks that of commit 0";
  seat.note_commit(0);
  EXPECT_TRUE(seat.is_level(1));
}

TEST(SeatTest, StatusTellsWhyItIsAway) {
  Seat seat = seat_in(State::kActive);
  EXPECT_FALSE(seat.status({0, "a", "a:1"}, kNow).loss) << "nothing is known yet";
  seat.report({.step = 3, .loss = 2.5}, kNow);
  seat.note_left_out();
  seat.put_away("reset\n", kNow);
  const IslandStatus status = seat.status({0, "a", "a:1"}, kNow + seconds(4));
  EXPECT_EQ(status.state, IslandState::kAway);
  EXPECT_EQ(status.reason, "reset?");
  EXPECT_EQ(status.heard_s, 4);
  EXPECT_EQ(status.loss, 2.5);
  EXPECT_EQ(status.left_out, 1);
}

/// Members 0 (live, connection 10), 1 (behind, 11) and 2 (away, without a connection).
class RosterTest : public testing::Test {
 protected:
  RosterTest() {
    roster.seat(0, 10, kNow).take_part(4, kNow);
    roster.seat(1, 11, kNow);
    roster.restore(2, State::kAway, kNow);
  }

  Roster roster{kSuspicion, kNow};
};

TEST_F(RosterTest, AConnectionIsOfOneMember) {
  EXPECT_EQ(roster.number_of(11), 1);
  roster.connect(1, 21);
  EXPECT_EQ(roster.number_of(11), std::nullopt) << "its old one";
  EXPECT_EQ(roster.number_of(21), 1);
  EXPECT_EQ(roster.at(1).connection(), 21);
  EXPECT_EQ(roster.disconnect(21), 1);
  EXPECT_EQ(roster.at(1).connection(), std::nullopt);
  EXPECT_EQ(roster.disconnect(21), std::nullopt);
  roster.vacate(0);
  EXPECT_THAT(roster.connections(), IsEmpty());
  EXPECT_THAT(roster.numbers(), ElementsAre(1, 2));
}

TEST_F(RosterTest, RoundsExpectWhoIsLiveFromItsFirstOneOn) {
  EXPECT_THAT(roster.expected(3), IsEmpty());
  EXPECT_THAT(roster.expected(4), ElementsAre(0));
  EXPECT_THAT(roster.live(), ElementsAre(0));
  EXPECT_EQ(roster.num_live(), 1);
  EXPECT_THAT(roster.in(State::kBehind), ElementsAre(1));
  EXPECT_FALSE(roster.any_in(State::kLeaving));
}

TEST_F(RosterTest, RemembersWhenAnybodyMovedSomething) {
  roster.report(0, {.moved = 0}, kNow + seconds(1));
  EXPECT_EQ(roster.last_moved(), kNow);
  roster.report(0, {.moved = 5}, kNow + seconds(2));
  roster.report(0, {.moved = 5}, kNow + seconds(3));
  roster.vacate(0);
  EXPECT_EQ(roster.last_moved(), kNow + seconds(2));
}

TEST_F(RosterTest, ForgivesAllAtOnce) {
  roster.forgive(kNow + seconds(60));
  EXPECT_FALSE(roster.at(0).is_silent(kNow + seconds(60)));
  EXPECT_FALSE(roster.at(1).is_silent(kNow + seconds(60)));
}

}  // namespace
}  // namespace atl::swarm
