#include "atoll/coordinator/address_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AddressCallsTest : public testing::Test {
 protected:
  std::vector<std::string> due() {
    std::vector<std::string> addresses;
    for (const auto& call : calls.take_due(now)) addresses.push_back(call.address);
    return addresses;
  }
  void want(const std::string& name, const std::string& address, int32_t number = 0) {
    calls.want({.number = number, .name = name, .address = address});
  }

  AddressCalls calls;
  Time now{std::chrono::seconds(100)};
};

TEST_F(AddressCallsTest, EachMemberIsCalledAtOnce) {
  want("a", "a:1");
  want("b", "b:1");
  EXPECT_THAT(due(), ElementsAre("a:1", "b:1"));
  EXPECT_THAT(due(), IsEmpty());
}

TEST_F(AddressCallsTest, NobodySearchesANetworkByNamingOneAddressAfterTheOther) {
  want("a", "10.0.0.1:22");
  EXPECT_THAT(due(), ElementsAre("10.0.0.1:22"));
  want("a", "10.0.0.2:22", /*number=*/1);
  want("a", "10.0.0.3:22", /*number=*/2);
  now += 2 * AddressCalls::kPause;
  EXPECT_THAT(due(), IsEmpty()) << "it is not known yet what came of the first";
  calls.ended("a");
  EXPECT_THAT(due(), ElementsAre("10.0.0.3:22"));
  calls.ended("a");
  want("a", "10.0.0.4:22");
  now += AddressCalls::kPause - std::chrono::seconds(1);
  EXPECT_THAT(due(), IsEmpty());
  now += std::chrono::seconds(1);
  EXPECT_THAT(due(), ElementsAre("10.0.0.4:22"));
}

}  // namespace
}  // namespace atl::swarm
