#include "atoll/coordinator/event_inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

net::Event frame(uint64_t connection, size_t size) {
  return net::Received{connection, Bytes(size)};
}

/// The connection of the next event; 0: there is none.
uint64_t next(EventInbox& inbox) {
  const auto event = inbox.pop({});
  if (!event) return 0;
  return std::visit([](const auto& e) { return e.connection; }, *event);
}

TEST(EventInboxTest, KeepsTheOrderAndWaits) {
  EventInbox inbox(100'000);
  inbox.push(net::Opened{1});
  inbox.push(frame(1, 59'000));
  inbox.push(frame(2, 40'000));
  inbox.push(frame(2, 0));
  inbox.push(net::Lost{1, "gone"});
  for (const uint64_t connection : {1, 1, 2, 2, 1, 0}) EXPECT_EQ(next(inbox), connection);
  EXPECT_THAT(inbox.take_greedy(), IsEmpty());
  inbox.push(frame(1, 99'000));  // What was taken counts no more.
  EXPECT_EQ(next(inbox), 1u);
  std::jthread later([&] { inbox.push(net::Opened{3}); });
  EXPECT_TRUE(inbox.pop(std::chrono::seconds(60)));
}

TEST(EventInboxTest, WhoFillsItPaysAndNobodyElse) {
  EventInbox inbox(100'000);
  inbox.push(net::Opened{1});
  inbox.push(frame(1, 30'000));
  inbox.push(frame(2, 50'000));
  inbox.push(frame(3, 10'000));
  inbox.push(frame(1, 11'000));  // Now it is too much; 2 has most of it.
  EXPECT_FALSE(inbox.pop(std::chrono::hours(1))) << "there is somebody to close";
  EXPECT_THAT(inbox.take_greedy(), ElementsAre(2));
  EXPECT_THAT(inbox.take_greedy(), IsEmpty());
  inbox.push(frame(2, 90'000));  // It was on its way.
  inbox.push(net::Lost{2, "closed"});
  for (const uint64_t connection : {1, 1, 3, 1, 2, 0}) EXPECT_EQ(next(inbox), connection);
  EXPECT_THAT(inbox.take_greedy(), IsEmpty());
}

TEST(EventInboxTest, OneFrameMayBeTooMuch) {
  EventInbox inbox(100'000);
  inbox.push(frame(1, 100'000));
  EXPECT_THAT(inbox.take_greedy(), ElementsAre(1));
  EXPECT_EQ(next(inbox), 0u);
}

TEST(EventInboxTest, EmptyFramesAreBoundedToo) {
  EventInbox inbox(100'000);
  for (int i = 0; i < 100'000; ++i) inbox.push(frame(1, 0));
  EXPECT_THAT(inbox.take_greedy(), ElementsAre(1));
}

}  // namespace
}  // namespace atl::swarm
