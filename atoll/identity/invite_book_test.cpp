#include "atoll/identity/invite_book.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "atoll/base/file.h"
#include "atoll/identity/guess_limit.h"
#include "atoll/identity/invite.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::identity {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;

const WallTime kNow = wall_time_of(1'800'000'000);

class InviteBookTest : public testing::Test {
 protected:
  std::string add(InviteTerms terms) {
    terms.expiry = kNow + hours(1);
    return book_.add(terms, kNow);
  }
  /// What the log has of a refusal; empty for a grant.
  std::string refusal(const std::string& secret, const std::string& name, const std::string& key,
                      WallTime now = kNow) {
    const auto answer = book_.redeem(secret, name, key, now);
    if (answer) return {};
    last_ = answer.error();
    return last_.to_log;
  }

  TestFolder folder_;
  InviteBook book_{folder_ / "invites.json"};
  Refusal last_;
};

TEST_F(InviteBookTest, AnInviteIsGoodForItsUsesAndItsTime) {
  const std::string secret = add({.role = Role::kServer, .uses = 2});
  EXPECT_EQ(refusal(secret, "anna", "k1"), "");
  EXPECT_THAT(refusal(secret, "bert", "k2", kNow + hours(1)), HasSubstr("has expired"));
  EXPECT_EQ(refusal(secret, "bert", "k2", kNow + seconds(3599)), "");
  EXPECT_THAT(refusal(secret, "carl", "k3"), HasSubstr("is used up"));
  EXPECT_EQ(book_.holders().size(), 2U);
  EXPECT_EQ(book_.holders()[0].second.role, Role::kServer);
}

TEST_F(InviteBookTest, AStrangerHearsTheSameWhateverIsWrong) {
  const std::string used = add({});
  EXPECT_EQ(refusal(used, "anna", "k1"), "");
  for (const auto& [secret, now] : {std::pair{new_secret(), kNow},
                                    {used, kNow},
                                    {used, kNow + hours(2)},
                                    {"", kNow},
                                    {"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", kNow}}) {
    EXPECT_NE(refusal(secret, "bert", "k2", now), "");
    EXPECT_EQ(last_.to_stranger, kNoSuchInvite);
    EXPECT_TRUE(last_.is_guess);
  }
}

TEST_F(InviteBookTest, ALostAnswerCostsNoUse) {
  const std::string secret = add({});
  EXPECT_EQ(refusal(secret, "anna", "k1"), "");
  const auto again = book_.redeem(secret, "anna", "k1", kNow + seconds(5));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->is_again);
  EXPECT_THAT(refusal(secret, "anna", "k2"), HasSubstr("used up"));
  EXPECT_THAT(refusal(secret, "bert", "k1"), HasSubstr("used up"));
  EXPECT_THAT(refusal(secret, "anna", "k1", kNow + hours(2)), HasSubstr("expired"));
}

TEST_F(InviteBookTest, ANameHasOneHolder) {
  const std::string first = add({.uses = 5});
  const std::string second = add({});
  EXPECT_EQ(refusal(first, "anna", "k1"), "");
  EXPECT_THAT(refusal(first, "anna", "k2"), HasSubstr("is taken"));
  EXPECT_EQ(last_.to_stranger, "the name 'anna' is taken in this run: choose another");
  EXPECT_FALSE(last_.is_guess);
  EXPECT_THAT(refusal(second, "anna", "k2"), HasSubstr("is taken"));
  EXPECT_EQ(refusal(second, "bert", "k1"), "");  // A name that is taken cost no use.
}

TEST_F(InviteBookTest, WhoHasTheKeyComesBackByANewInvite) {
  EXPECT_EQ(refusal(add({}), "anna", "k1"), "");
  const std::string second = add({});
  EXPECT_EQ(refusal(second, "anna", "k1"), "");
  EXPECT_THAT(refusal(second, "bert", "k3"), HasSubstr("used up"));
  EXPECT_THAT(refusal(add({.role = Role::kReader}), "anna", "k1"), HasSubstr("is taken"));
}

TEST_F(InviteBookTest, NamesMayBeFixed) {
  const std::string fixed = add({.name = "anna"});
  const std::string prefixed = add({.uses = 9, .name_prefix = "lab-"});
  EXPECT_THAT(refusal(fixed, "bert", "k"), HasSubstr("for the name 'anna'"));
  EXPECT_THAT(refusal(prefixed, "bert", "k"), HasSubstr("begin with 'lab-'"));
  EXPECT_EQ(refusal(fixed, "anna", "k"), "");
  EXPECT_EQ(refusal(prefixed, "lab-1", "k"), "");
  EXPECT_EQ(refusal(prefixed, "lab-\n", "k"),
            "'lab-?' is no valid name: 1 to 64 letters, digits, '-', '_' and '.'");
}

TEST_F(InviteBookTest, ItsFileIsPrivateAndHasNoSecret) {
  const std::string secret = add({.uses = 3});
  EXPECT_EQ(refusal(secret, "anna", "k1"), "");
  struct stat status{};
  ASSERT_EQ(::stat((folder_ / "invites.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(read_file(folder_ / "invites.json").find(secret), std::string::npos);
  InviteBook other(folder_ / "invites.json");
  ASSERT_EQ(other.list().size(), 1U);
  EXPECT_EQ(other.list()[0].terms.uses, 2);
  EXPECT_TRUE(other.withdraw(other.list()[0].id));
  EXPECT_FALSE(other.withdraw("123456789abc"));
  EXPECT_THAT(refusal(secret, "bert", "k2"), HasSubstr("unknown"));
}

TEST_F(InviteBookTest, WhoIsReleasedHasLostTheInviteToo) {
  const std::string secret = add({.uses = 9});
  EXPECT_EQ(refusal(secret, "eve", "k1"), "");
  EXPECT_TRUE(book_.release("eve"));
  EXPECT_FALSE(book_.release("eve"));
  EXPECT_THAT(refusal(secret, "eve2", "k2"), HasSubstr("unknown"));
  EXPECT_EQ(refusal(add({}), "eve", "k3"), "");
}

TEST_F(InviteBookTest, NamesAreHeldWithoutInvitesToo) {
  const PeerId peer{.role = Role::kCoordinator, .name = "main"};
  EXPECT_TRUE(book_.hold(peer, "k1"));
  EXPECT_TRUE(book_.hold(peer, "k2"));
  EXPECT_EQ(book_.holders()[0].second.key_hash, "k2");
  EXPECT_FALSE(book_.hold({.role = Role::kIsland, .name = "main"}, "k3"));
  EXPECT_THAT(refusal(add({}), "main", "k2"), HasSubstr("is taken"));
}

TEST_F(InviteBookTest, TermsMustMakeSense) {
  const auto complaint = [&](const InviteTerms& terms) {
    return message_of([&] { book_.add(terms, kNow); });
  };
  const WallTime end = kNow + hours(1);
  EXPECT_EQ(complaint({.expiry = end}), "");
  EXPECT_THAT(complaint({.role = Role::kCoordinator, .expiry = end}), HasSubstr("coordinator"));
  EXPECT_THAT(complaint({.uses = 0, .expiry = end}), HasSubstr("from 1"));
  EXPECT_THAT(complaint({.expiry = kNow}), HasSubstr("ahead"));
  EXPECT_THAT(complaint({.expiry = end, .name = "a b"}), HasSubstr("name"));
  EXPECT_THAT(complaint({.uses = 2, .expiry = end, .name = "a"}), HasSubstr("one member"));
  EXPECT_THAT(complaint({.expiry = end, .name_prefix = "\""}), HasSubstr("no name begins so"));
}

TEST_F(InviteBookTest, ADamagedFileIsRefusedAndStays) {
  const auto file = folder_.write("invites.json", "{\"version\": 1, \"invites\": 3}");
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { add({}); }), HasSubstr("invites.json"));
  EXPECT_THAT(read_file(file), HasSubstr("\"invites\": 3"));
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(message_of([&] { add({}); }), HasSubstr("chmod 600"));
}

TEST_F(InviteBookTest, NoUseIsGivenTwiceToWhoeverComesAtOnce) {
  const std::string secret = add({.uses = 3});
  std::array<int, 4> granted{};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      InviteBook book(folder_ / "invites.json");
      for (int i = 0; i < 3; ++i) {
        granted[t] += book.redeem(secret, fmt::format("m{}-{}", t, i), "k", kNow).has_value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted[0] + granted[1] + granted[2] + granted[3], 3);
  EXPECT_EQ(book_.holders().size(), 3U);
}

TEST(GuessLimitTest, AFewAtOnceThenOneInAWhile) {
  GuessLimit limit;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(limit.allows("10.0.0.1", kNow));
    limit.count("10.0.0.1", kNow);
  }
  EXPECT_FALSE(limit.allows("10.0.0.1", kNow + seconds(9)));
  EXPECT_TRUE(limit.allows("10.0.0.2", kNow));
  EXPECT_TRUE(limit.allows("10.0.0.1", kNow + seconds(10)));
  limit.count("10.0.0.1", kNow + seconds(10));
  EXPECT_FALSE(limit.allows("10.0.0.1", kNow + seconds(19)));
  EXPECT_TRUE(limit.allows("10.0.0.1", kNow + seconds(20)));
  // A clock that is set back gives nothing away.
  EXPECT_FALSE(limit.allows("10.0.0.1", kNow - hours(5)));
}

TEST(GuessLimitTest, ManyAddressesShareATotalAndNoMoreMemoryThanThat) {
  GuessLimit limit;
  int allowed = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string host = fmt::format("10.0.{}.{}", i / 250, i % 250);
    if (!limit.allows(host, kNow)) continue;
    limit.count(host, kNow);
    ++allowed;
  }
  EXPECT_EQ(allowed, 200);
  for (int i = 0; i < 10000; ++i) limit.count(fmt::format("host{}", i), kNow);
  EXPECT_EQ(limit.num_groups(), GuessLimit::kMaxGroups);
  // With no room for more, all others are one; when the first have recovered there is room again.
  EXPECT_FALSE(limit.allows("new", kNow + seconds(10 - 1)));
  limit.count("newer", kNow + seconds(100));
  EXPECT_EQ(limit.num_groups(), 1U);
  EXPECT_TRUE(limit.allows("new", kNow + seconds(100)));
}

TEST(GuessLimitTest, ANetworkOfIpv6IsOneCaller) {
  EXPECT_EQ(guess_group("2001:db8:1:2:3:4:5:6"), guess_group("[2001:db8:1:2::9]"));
  EXPECT_NE(guess_group("2001:db8:1:2::1"), guess_group("2001:db8:1:3::1"));
  EXPECT_EQ(guess_group("fe80::1%eth0"), guess_group("fe80::2"));
  EXPECT_EQ(guess_group("::ffff:10.0.0.1"), guess_group("10.0.0.1"));
  EXPECT_NE(guess_group("10.0.0.1"), guess_group("10.0.0.2"));
}

}  // namespace
}  // namespace atl::identity
