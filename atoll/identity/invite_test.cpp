#include "atoll/identity/invite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "atoll/testing/temporary_folder.h"

namespace atl::identity {
namespace {

using testing::HasSubstr;

Invite good_invite() {
  return {.addresses = {"train.example.org:7711", "[2001:db8::1]:7711"},
          .fingerprint = std::string(60, '0') + "beef",
          .secret = new_secret(),
          .run_name = "llama",
          .role = Role::kReader,
          .expiry = wall_time_of(1'800'000'000)};
}

TEST(InviteTest, IsOneWordAndReadAsItIsWritten) {
  const Invite invite = good_invite();
  const std::string word = word_of(invite);
  EXPECT_THAT(word, testing::MatchesRegex("atoll1\\.[A-Za-z0-9_-]+"));
  EXPECT_LT(word.size(), 250U);
  EXPECT_EQ(invite_in(word).value(), invite);
}

TEST(InviteTest, SecretsDiffer) {
  EXPECT_NE(new_secret(), new_secret());
  EXPECT_EQ(new_secret().size(), 22U);
  EXPECT_TRUE(is_secret(new_secret()));
  EXPECT_FALSE(is_secret("short"));
  EXPECT_FALSE(is_secret(std::string(20, '\n')));
  EXPECT_FALSE(is_secret(std::string(65, 'a')));
}

TEST(InviteTest, AWordThatIsCutOrMistypedIsSaidToBe) {
  const std::string word = word_of(good_invite());
  for (size_t size = 7; size < word.size(); ++size) {
    EXPECT_THAT(invite_in(word.substr(0, size)).error().message, HasSubstr("cut off")) << size;
  }
  for (size_t at = 7; at < word.size(); ++at) {
    std::string wrong = word;
    wrong[at] = wrong[at] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(invite_in(wrong)) << at;
  }
  EXPECT_FALSE(invite_in(word + "A"));
  EXPECT_FALSE(invite_in(word + "="));
  EXPECT_FALSE(invite_in(word + "\n"));
  EXPECT_FALSE(invite_in(word + std::string(5000, 'A')));
  EXPECT_THAT(invite_in("").error().message, HasSubstr("begins with 'atoll1.'"));
  EXPECT_THAT(invite_in("atoll2." + word.substr(7)).error().message, HasSubstr("begins with"));
}

TEST(InviteTest, PartsThatAreNoneAreRefused) {
  const auto refused = [](const auto& change) {
    Invite invite = good_invite();
    change(invite);
    return !message_of([&] { word_of(invite); }).empty();
  };
  EXPECT_TRUE(refused([](Invite& it) { it.addresses.clear(); }));
  EXPECT_TRUE(refused([](Invite& it) { it.addresses.resize(9, "a:1"); }));
  EXPECT_TRUE(refused([](Invite& it) { it.addresses[0] = "a b"; }));
  EXPECT_TRUE(refused([](Invite& it) { it.addresses[0] = std::string(256, 'a'); }));
  EXPECT_TRUE(refused([](Invite& it) { it.fingerprint.pop_back(); }));
  EXPECT_TRUE(refused([](Invite& it) { it.secret = "x"; }));
  EXPECT_TRUE(refused([](Invite& it) { it.run_name = "\x1b[2J"; }));
  EXPECT_TRUE(refused([](Invite& it) { it.role = static_cast<Role>(9); }));
  EXPECT_TRUE(refused([](Invite& it) { it.expiry = wall_time_of(-5); }));
}

TEST(InviteTest, AnArgumentMayBeTheWordAFileOrTheInput) {
  const TestFolder folder;
  const auto file = folder.write("invite", " atoll1.file \nsecond\n");
  std::istringstream input("atoll1.input\r\nsecond\n");
  EXPECT_EQ(read_invite_argument("atoll1.word", input), "atoll1.word");
  EXPECT_EQ(read_invite_argument("@" + file.string(), input), "atoll1.file");
  EXPECT_EQ(read_invite_argument("-", input), "atoll1.input");
  std::istringstream last("atoll1.last");
  EXPECT_EQ(read_invite_argument("-", last), "atoll1.last");
  std::istringstream none;
  EXPECT_THAT(message_of([&] { read_invite_argument("-", none); }), HasSubstr("standard input"));
  EXPECT_THAT(message_of([&] { read_invite_argument("@/no/such", none); }),
              HasSubstr("'/no/such': No such file"));
  std::istringstream endless(std::string(100000, 'a'));
  EXPECT_LE(read_invite_argument("-", endless).size(), kMaxInviteBytes);
}

}  // namespace
}  // namespace atl::identity
