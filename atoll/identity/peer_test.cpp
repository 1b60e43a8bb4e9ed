#include "atoll/identity/peer.h"

#include <gtest/gtest.h>

#include <string>

#include "atoll/identity/wall_time.h"

namespace atl::identity {
namespace {

const std::string kRun(64, 'a');

TEST(PeerTest, AUriIsReadAsItIsWritten) {
  for (int role = 0; role < 6; ++role) {
    const PeerId peer{.run = kRun, .role = static_cast<Role>(role), .name = "Host-1_b.example"};
    EXPECT_EQ(peer_in(uri_of(peer)).value(), peer);
  }
  EXPECT_EQ(uri_of({.run = kRun, .role = Role::kGateway, .name = "x"}),
            "atoll://" + kRun + "/gateway/x");
}

TEST(PeerTest, NoOtherSpellingIsTaken) {
  const std::string good = "atoll://" + kRun + "/island/x";
  ASSERT_TRUE(peer_in(good));
  const std::string upper(64, 'A');
  for (const std::string& bad : {std::string(),
                                 std::string("atoll://"),
                                 "ATOLL://" + kRun + "/island/x",
                                 good + "/",
                                 good + "/y",
                                 good + "?q",
                                 good + "#f",
                                 good + " ",
                                 good + "\n",
                                 good + std::string(1, '\0'),
                                 "atoll:///" + kRun,
                                 "atoll://" + kRun,
                                 "atoll://" + kRun + "/island",
                                 "atoll://" + kRun + "/island/",
                                 "atoll://" + kRun + "/Island/x",
                                 "atoll://" + kRun + "/king/x",
                                 "atoll://" + kRun + "//x",
                                 "atoll://" + kRun + "/island/.",
                                 "atoll://" + kRun + "/island/..",
                                 "atoll://" + kRun + "/island/%78",
                                 "atoll://" + upper + "/island/x",
                                 "atoll://" + kRun.substr(1) + "/island/x",
                                 "atoll://a@" + kRun + "/island/x",
                                 "atoll://" + kRun + "/island/" + std::string(65, 'x')}) {
    EXPECT_FALSE(peer_in(bad)) << bad;
  }
}

TEST(PeerTest, ARoleThatIsNoneIsNamedPrintably) {
  EXPECT_EQ(role_named("reader").value(), Role::kReader);
  EXPECT_EQ(role_named("a\nb").error().message, "no role 'a?b'");
}

TEST(WallTimeTest, IsTextInUniversalTime) {
  EXPECT_EQ(text_of(wall_time_of(0)), "1970-01-01 00:00:00 UTC");
  EXPECT_EQ(text_of(wall_time_of(1798761599.9)), "2026-12-31 23:59:59 UTC");
  EXPECT_EQ(text_of(WallTime::max()), "a time out of all calendars");
  EXPECT_EQ(text_of(WallTime::min()), "a time out of all calendars");
}

}  // namespace
}  // namespace atl::identity
