#include "atoll/openai/keyring.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::openai {
namespace {

const std::string kFirst = "0123456789abcdef";
const std::string kSecond = "fedcba9876543210";

TEST(KeyringTest, KnowsWhoseKeyItIs) {
  const Keyring keys({{"a", kFirst}, {"b", kSecond, 3}});
  EXPECT_EQ(keys.find("Bearer " + kSecond), 1U);
  EXPECT_EQ(keys.find("bEARER " + kSecond), 1U);
  EXPECT_FALSE(keys.find("Basic  " + kSecond));
  EXPECT_FALSE(keys.find(kSecond));
  EXPECT_FALSE(keys.find("Bearer x"));
  EXPECT_FALSE(keys.find(""));
  EXPECT_EQ(keys.shares(), (std::vector<double>{1, 3}));
  EXPECT_EQ(Keyring({}).find(""), 0U);
  EXPECT_EQ(Keyring({}).shares().size(), 1U);
}

TEST(KeyringTest, RefusesKeysThatAreShortOrTheSameOrWithoutAShare) {
  EXPECT_THROW(Keyring(std::vector<ApiKey>{{"a", "short"}}), UsageError);
  EXPECT_THROW(Keyring({{"a", kFirst}, {"b", kFirst}}), UsageError);
  EXPECT_THROW(Keyring(std::vector<ApiKey>{{"a", kFirst, 0}}), UsageError);
}

TEST(KeyringTest, ReadsAFile) {
  const auto keys = read_keys("# who\n\na " + kFirst + "\n b " + kSecond + "  2.5\n", "keys");
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[1].secret, kSecond);
  EXPECT_EQ(keys[1].share, 2.5);
  for (const char* bad : {"a", "a b c", "a b 1 2", "", "# nobody\n"}) {
    EXPECT_THROW(read_keys(bad, "keys"), UsageError) << bad;
  }
}

}  // namespace
}  // namespace atl::openai
