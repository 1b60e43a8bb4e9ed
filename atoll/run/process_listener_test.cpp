#include "atoll/run/process_listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "atoll/base/error.h"

namespace atl::run {
namespace {

TEST(ProcessListenerTest, ItIsAtThatAddressAlone) {
  const auto listener = listen_for_processes("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener->socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_EQ(ntohs(address.sin_port), listener->port);
  EXPECT_GT(listener->port, 0);
  EXPECT_THROW(listen_for_processes("127.0.0.1", listener->port), InputError);
  ::close(listener->socket);
}

TEST(ProcessListenerTest, AnAddressOfAnotherMachineIsNone) {
  EXPECT_FALSE(listen_for_processes("192.0.2.1", 0));  // Of those for examples.
  EXPECT_FALSE(listen_for_processes("no-such-host.invalid", 0));
}

}  // namespace
}  // namespace atl::run
