#include "atoll/run/round_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;
using collective::CommittedRound;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Digest digest(int value) { return sha256(as_byte_span(std::to_string(value))); }

/// From state `number` to the next.
std::shared_ptr<const CommittedRound> round(int number, size_t size = 5) {
  CommittedRound out{.round = number,
                     .fragment = 1,
                     .step = 10 * (number + 1),
                     .digest = digest(number + 1),
                     .count = 40,
                     .segment_values = 30,
                     .members = {2, 7},
                     .weights = {100, 300}};
  for (int segment = 0; segment < 2; ++segment) {
    const auto bytes = std::make_shared<Bytes>(size, static_cast<std::byte>(number + segment));
    out.result.segments.push_back({{collective::kMeanKey, {bytes, *bytes}}});
  }
  return std::make_shared<const CommittedRound>(std::move(out));
}

class RoundLogTest : public testing::Test {
 protected:
  RoundLog open(size_t most_bytes = 1000) {
    return {folder_ / "rounds", most_bytes,
            [this](const std::string& sentence) { notices_.push_back(sentence); }};
  }
  std::vector<int64_t> found() const {
    std::vector<int64_t> numbers;
    for (const LoggedRound& logged : list_rounds(folder_ / "rounds")) {
      numbers.push_back(logged.round);
    }
    std::ranges::sort(numbers);
    return numbers;
  }

  TestFolder folder_;
  std::vector<std::string> notices_;
};

TEST_F(RoundLogTest, ComesBackAsItWas) {
  {
    open().add(round(3), digest(3));
  }
  const auto rounds = list_rounds(folder_ / "rounds");
  ASSERT_EQ(rounds.size(), 1);
  EXPECT_EQ(rounds[0].round, 3);
  EXPECT_EQ(rounds[0].step, 40);
  EXPECT_EQ(rounds[0].fragment, 1);
  EXPECT_EQ(rounds[0].before, digest(3));
  EXPECT_EQ(rounds[0].after, digest(4));
  const CommittedRound read = read_round(rounds[0].file);
  EXPECT_EQ(read.count, 40);
  EXPECT_EQ(read.segment_values, 30);
  EXPECT_THAT(read.members, ElementsAre(2, 7));
  EXPECT_THAT(read.weights, ElementsAre(100, 300));
  EXPECT_EQ(collective::encode(read.result), collective::encode(round(3)->result));
}

TEST_F(RoundLogTest, NoFolderIsNoRounds) { EXPECT_THAT(found(), IsEmpty()); }

TEST_F(RoundLogTest, WhatACheckpointIncludesIsDeletedOnceItIsComplete) {
  RoundLog log = open();
  log.add(round(0), digest(0));
  const auto first_is_complete = log.checkpoint_begins();
  log.add(round(1), digest(1));
  const auto second_is_complete = log.checkpoint_begins();
  log.add(round(2), digest(2));
  static_cast<void>(log.checkpoint_begins());  // Waits until the last is on disk.
  EXPECT_THAT(found(), ElementsAre(0, 1, 2));
  first_is_complete();
  EXPECT_THAT(found(), ElementsAre(1, 2));
  second_is_complete();
  EXPECT_THAT(found(), ElementsAre(2));
}

TEST_F(RoundLogTest, AnEarlierProcessHasNoOtherRules) {
  {
    open().add(round(0), digest(0));
  }
  std::ofstream(folder_ / "rounds" / "step-00000020-round-00000001-1.round.tmp") << "half";
  RoundLog log = open();
  log.add(round(1), digest(1));
  log.checkpoint_begins()();
  EXPECT_TRUE(fs::is_empty(folder_ / "rounds"));
}

TEST_F(RoundLogTest, KeepsOnlyWhatTheRunGoesOnFrom) {
  {
    RoundLog log = open();
    for (int i = 0; i < 4; ++i) log.add(round(i), digest(i));
  }
  auto rounds = list_rounds(folder_ / "rounds");
  std::erase_if(rounds, [](const LoggedRound& logged) { return logged.round > 1; });
  RoundLog log = open();
  log.keep_only(rounds);
  EXPECT_THAT(found(), ElementsAre(0, 1));
}

TEST_F(RoundLogTest, IsFullUntilTheNextCheckpoint) {
  RoundLog log = open(/*most_bytes=*/25);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(log.is_full()) << i;
    log.add(round(i), digest(i));  // Of 10 bytes.
  }
  EXPECT_TRUE(log.is_full());
  log.add(round(3), digest(3));
  static_cast<void>(log.checkpoint_begins());
  EXPECT_FALSE(log.is_full());
  EXPECT_THAT(found(), ElementsAre(0, 1, 2, 3)) << "nothing is lost meanwhile";
}

TEST_F(RoundLogTest, DamageIsPassedOver) {
  {
    open().add(round(0), digest(0));
  }
  const fs::path file = list_rounds(folder_ / "rounds").at(0).file;
  const std::string whole = read_file(file);
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, size);
    EXPECT_THAT(found(), IsEmpty()) << size << " bytes";
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    std::ofstream(file, std::ios::binary) << flipped;
    EXPECT_THAT(found(), IsEmpty()) << "byte " << at;
    EXPECT_THROW(read_round(file), InputError);
  }
}

TEST_F(RoundLogTest, ADiskThatDoesNotTakeThemIsToldOnce) {
  std::ofstream(folder_ / "rounds") << "a file, and no folder";
  RoundLog log = open();
  for (int i = 0; i < 5; ++i) log.add(round(i), digest(i));
  ASSERT_EQ(notices_.size(), 1);
  EXPECT_THAT(notices_[0], HasSubstr("goes on from its newest checkpoint"));
}

}  // namespace
}  // namespace atl::run
