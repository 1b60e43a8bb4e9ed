// What is fetched from whom, with servers that lack it, lie, fall silent and die.
#include "atoll/chain/part_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace atl::chain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const std::string kModel(64, 'a');

/// A part of 10 pieces, the last one short; and what happened to it.
struct Fetching {
  Fetching() {
    std::mt19937 random(1);
    for (uint32_t i = 0; i < 10; ++i) {
      Bytes& piece = pieces_.emplace_back(i == 9 ? 17 : kTreeChunkBytes);
      for (size_t at = 0; at < piece.size(); at += 64) piece[at] = static_cast<std::byte>(random());
      hashes_.push_back(sha256(piece));
    }
    const auto bytes = std::as_bytes(std::span(hashes_));
    list_.assign(bytes.begin(), bytes.end());
  }

  /// Does what it says.
  void act() {
    for (auto& action : fetch_.take()) {
      if (const auto* call = std::get_if<PartFetch::Call>(&action)) {
        called_.push_back(call->address);
      } else if (const auto* ask = std::get_if<PartFetch::Ask>(&action)) {
        EXPECT_EQ(ask->want.model, kModel);
        EXPECT_EQ(ask->want.part, 3);
        asked_.emplace_back(ask->address, ask->want.piece);
      } else if (const auto* hang_up = std::get_if<PartFetch::HangUp>(&action)) {
        hung_up_.push_back(hang_up->address);
        std::erase_if(asked_, [&](const auto& each) { return each.first == hang_up->address; });
      } else if (const auto* keep = std::get_if<PartFetch::Keep>(&action)) {
        EXPECT_TRUE(kept_.insert(keep->piece.piece).second) << "once each";
        if (keep->piece.piece >= 0) {
          EXPECT_EQ(keep->piece.bytes, pieces_[static_cast<size_t>(keep->piece.piece)]);
        }
      } else {
        told_.push_back(std::get<PartFetch::Tell>(action).sentence);
      }
    }
  }
  void open(const std::vector<std::string>& addresses) {
    fetch_.set_servers(addresses, now_);
    act();
    for (const std::string& address : addresses) fetch_.opened(address, now_);
    act();
  }
  void want_all() {
    fetch_.want_pieces(3, hashes_, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, now_);
    act();
  }
  Piece right(int64_t piece) const {
    return {.model = kModel, .part = 3, .piece = piece, .bytes = pieces_[size_t(piece)]};
  }
  void send(const std::string& address, Piece piece) {
    std::erase(asked_, std::pair(address, piece.piece));
    fetch_.received(address, std::move(piece), now_);
    act();
  }
  /// Whoever is asked answers rightly, until nobody is.
  void answer_all() {
    while (!asked_.empty()) {
      const auto [address, piece] = asked_.front();
      send(address, right(piece));
    }
  }
  size_t num_asked(const std::string& address) const {
    return static_cast<size_t>(
        std::ranges::count(asked_, address, [](const auto& each) { return each.first; }));
  }
  void pass(Duration time) {
    now_ += time;
    fetch_.tick(now_);
    act();
  }

  std::vector<Bytes> pieces_;
  std::vector<Digest> hashes_;
  Bytes list_;  // Of the hashes.
  Time now_{};
  PartFetch fetch_{kModel};
  std::vector<std::string> called_, hung_up_, told_;
  std::vector<std::pair<std::string, int64_t>> asked_;
  std::set<int64_t> kept_;
};

class PartFetchTest : public ::testing::Test, protected Fetching {};

TEST_F(PartFetchTest, PiecesComeFromSeveralServersAFewUnderWayAtEach) {
  open({"a", "b"});
  EXPECT_THAT(called_, IsEmpty()) << "nothing is wanted";
  want_all();
  EXPECT_THAT(called_, UnorderedElementsAre("a", "b"));
  EXPECT_THAT(asked_, IsEmpty());
  open({"a", "b"});
  EXPECT_EQ(num_asked("a"), PartFetch::kMostAsked);
  EXPECT_EQ(num_asked("b"), PartFetch::kMostAsked);
  answer_all();
  EXPECT_TRUE(fetch_.is_done());
  EXPECT_THAT(kept_, SizeIs(10));
}

TEST_F(PartFetchTest, HashesAreThoseOfTheRoot) {
  fetch_.want_hashes(3, tree_digest(hashes_), 10, now_);
  open({"a"});
  ASSERT_THAT(asked_, SizeIs(1));
  Bytes other = list_;
  other[40] ^= std::byte{1};
  send("a", {.model = kModel, .part = 3, .piece = kHashesPiece, .bytes = other});
  EXPECT_THAT(told_, ElementsAre(HasSubstr("the hashes of layer 3 are not the model's")));
  open({"a", "b"});
  send("b", {.model = kModel, .part = 3, .piece = kHashesPiece, .bytes = list_});
  EXPECT_THAT(kept_, UnorderedElementsAre(kHashesPiece));
}

TEST_F(PartFetchTest, FewerHashesThanPiecesAreALie) {
  const std::vector<Digest> fewer(hashes_.begin(), hashes_.end() - 1);
  fetch_.want_hashes(3, tree_digest(fewer), 10, now_);
  open({"a"});
  send("a", {.model = kModel,
             .part = 3,
             .piece = kHashesPiece,
             .bytes = Bytes(list_.begin(), list_.end() - 32)});
  EXPECT_THAT(told_, ElementsAre(HasSubstr("the hashes of layer 3 are 9, and there are 10")));
  EXPECT_THAT(kept_, IsEmpty());
}

TEST_F(PartFetchTest, WhoSendsWhatIsWrongIsLeftAloneAndOthersAreAsked) {
  std::vector<Piece> wrong;
  for (int64_t i = 0; i < 5; ++i) wrong.push_back(right(0));
  wrong[0].bytes[5] ^= std::byte{1};
  wrong[1].bytes.pop_back();
  wrong[2].bytes.push_back({});
  wrong[3].bytes.resize(3 * kTreeChunkBytes);
  wrong[4].bytes = pieces_[1];
  for (const Piece& piece : wrong) {
    Fetching other;
    other.want_all();
    other.open({"b", "c"});
    ASSERT_EQ(other.asked_.front(), (std::pair<std::string, int64_t>("b", 0)));
    other.send("b", piece);
    EXPECT_THAT(other.told_, ElementsAre(HasSubstr("b sends what is wrong, others are asked")));
    EXPECT_THAT(other.hung_up_, UnorderedElementsAre("b"));
    other.answer_all();
    EXPECT_TRUE(other.fetch_.is_done());
    EXPECT_THAT(other.kept_, SizeIs(10));
  }
}

TEST_F(PartFetchTest, WhatNobodyAskedForIsALie) {
  for (int kind = 0; kind < 3; ++kind) {
    Fetching other;
    other.want_all();
    other.open({"a"});
    Piece piece = right(kind == 0 ? 8 : 0);
    if (kind == 1) piece.part = 2;
    if (kind == 2) piece.model = std::string(64, 'b');
    other.send("a", piece);
    EXPECT_THAT(other.told_, ElementsAre(HasSubstr("what it was not asked for")));
    EXPECT_THAT(other.kept_, IsEmpty());
  }
}

TEST_F(PartFetchTest, WhoDiesIsReplacedAndCalledAgain) {
  want_all();
  open({"a", "b"});
  send("a", right(0));
  fetch_.lost("a", now_);
  std::erase_if(asked_, [](const auto& each) { return each.first == "a"; });
  act();
  answer_all();
  EXPECT_TRUE(fetch_.is_done()) << "b has sent all the rest";
  called_.clear();
  want_all();
  kept_.clear();
  fetch_.lost("b", now_);
  asked_.clear();
  pass(PartFetch::kLongestPause);
  EXPECT_THAT(called_, UnorderedElementsAre("a", "b"));
}

TEST_F(PartFetchTest, WhoLacksItIsAskedAgainLater) {
  want_all();
  open({"a"});
  for (int i = 0; i < 4; ++i) {
    send("a", {.model = kModel, .part = 3, .piece = asked_.front().second, .bytes = {}});
  }
  EXPECT_THAT(asked_, IsEmpty());
  pass(PartFetch::kHope + std::chrono::seconds(1) - PartFetch::kLacking * 3);
  EXPECT_THAT(told_, IsEmpty());
  pass(PartFetch::kLacking);
  EXPECT_THAT(asked_, SizeIs(4));
  for (int i = 0; i < 4; ++i) {
    send("a", {.model = kModel, .part = 3, .piece = asked_.front().second, .bytes = {}});
  }
  pass(PartFetch::kHope);
  answer_all();
  EXPECT_TRUE(fetch_.is_done());
}

TEST_F(PartFetchTest, WhenNobodyHasItThatIsToldOnce) {
  want_all();
  pass(PartFetch::kHope + std::chrono::seconds(1));
  pass(std::chrono::minutes(1));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("none of the 0 other servers of this model sends piece "
                                           "0 of layer 3: waiting until one does")));
}

TEST_F(PartFetchTest, WhoFallsSilentIsGivenUpForTheMoment) {
  want_all();
  open({"a"});
  pass(PartFetch::kPatience / 2);
  send("a", right(0));
  pass(PartFetch::kPatience / 2 + std::chrono::seconds(1));
  EXPECT_THAT(hung_up_, IsEmpty()) << "it has said something";
  pass(PartFetch::kPatience);
  EXPECT_THAT(hung_up_, UnorderedElementsAre("a"));
  called_.clear();
  pass(PartFetch::kFirstPause);
  EXPECT_THAT(called_, UnorderedElementsAre("a"));
}

TEST_F(PartFetchTest, NotMoreThanAFewAreCalledUnlessThoseLackIt) {
  want_all();
  const std::vector<std::string> all{"a", "b", "c", "d", "e", "f"};
  fetch_.set_servers(all, now_);
  act();
  EXPECT_THAT(called_, UnorderedElementsAre("a", "b", "c", "d"));
  fetch_.opened("a", now_);
  act();
  for (int i = 0; i < 4; ++i) {
    send("a", {.model = kModel, .part = 3, .piece = asked_.front().second, .bytes = {}});
  }
  EXPECT_THAT(called_, ::testing::Contains("e"));
}

TEST_F(PartFetchTest, ServersThatAreGoneAreForgotten) {
  want_all();
  open({"a", "b"});
  fetch_.set_servers({"b"}, now_);
  act();
  EXPECT_THAT(hung_up_, UnorderedElementsAre("a"));
  send("a", right(0));
  EXPECT_THAT(kept_, IsEmpty());
  answer_all();
  EXPECT_TRUE(fetch_.is_done());
}

}  // namespace
}  // namespace atl::chain
