#include "atoll/base/base64.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(Base64, IsThatOfRfc4648) {
  for (const auto& [bytes, text] : {std::pair{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foobar", "Zm9vYmFy"},
                                    {"\xff\xfe\xfd", "//79"}}) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zg=", "Zg", "=", "====", "Zg==Zg==", "Zm 9", " Zm9", "Zm9v\n",
                           "Zm9-", "Z===", "Zm9v    "}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace atl
