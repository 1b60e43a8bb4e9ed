#include "atoll/net/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct EventLoopTest : testing::Test {
  /// Runs it on the loop and waits until it is done.
  void on_loop(const EventLoop::Task& task) {
    std::promise<void> done;
    loop.post([&] {
      task();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(seconds(20)), std::future_status::ready);
  }

  SystemClock clock;
  EventLoop loop{clock};
};

/// Two ends of a connection.
struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    near = Descriptor(ends[0]);
    far = Descriptor(ends[1]);
  }
  Descriptor near;
  Descriptor far;
};

TEST_F(EventLoopTest, PostedTasksRunInOrderAndTimersInTheirs) {
  std::string posted;
  std::string timed;
  std::promise<void> done;
  on_loop([&] {
    loop.call_after(milliseconds(20), [&] {
      timed += '2';
      done.set_value();
    });
    loop.call_after(milliseconds(1), [&] { timed += '1'; });
    loop.post([&] { posted += '2'; });
    posted += '1';
  });
  ASSERT_EQ(done.get_future().wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(posted, "12");
  EXPECT_EQ(timed, "12");
}

TEST_F(EventLoopTest, AWatchedDescriptorIsToldUntilItIsForgotten) {
  const Pair pair;
  std::promise<uint32_t> told;
  std::atomic<int> count = 0;
  on_loop([&] {
    loop.watch(pair.near.get(), EPOLLIN, [&](uint32_t ready) {
      if (++count == 1) told.set_value(ready);
      loop.forget(pair.near.get());
    });
  });
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  EXPECT_EQ(told.get_future().get() & EPOLLIN, EPOLLIN);
  ASSERT_EQ(::write(pair.far.get(), "x", 1), 1);
  on_loop([] {});
  on_loop([] {});
  EXPECT_EQ(count, 1);
}

TEST_F(EventLoopTest, WhatWasSaidOfADescriptorDoesNotReachTheNextOfItsNumber) {
  auto first = std::make_unique<Pair>();
  const Pair second;
  std::unique_ptr<Pair> third;
  std::vector<std::string> told;
  // Both are ready in one turn; whichever is told first closes the other, whose number the next
  // descriptor gets, of which nothing is to be told.
  on_loop([&] {
    ASSERT_EQ(::write(first->far.get(), "x", 1), 1);
    ASSERT_EQ(::write(second.far.get(), "x", 1), 1);
    const int number = first->near.get();
    loop.watch(second.near.get(), EPOLLIN, [&, number](uint32_t /*ready*/) {
      told.emplace_back("second");
      loop.forget(second.near.get());
      loop.forget(number);
      first.reset();
      third = std::make_unique<Pair>();
      EXPECT_TRUE(third->near.get() == number || third->far.get() == number);
      loop.watch(number, EPOLLIN, [&](uint32_t /*ready*/) { told.emplace_back("third"); });
    });
    loop.watch(number, EPOLLIN, [&, number](uint32_t /*ready*/) {
      told.emplace_back("first");
      loop.forget(number);
    });
  });
  on_loop([] {});
  on_loop([] {});
  // Its end would be told as the pair closes, to what is gone by then.
  on_loop([&] {
    ASSERT_NE(third, nullptr);
    loop.forget(third->near.get());
    loop.forget(third->far.get());
  });
  EXPECT_THAT(told, testing::Not(testing::Contains("third")));
}

TEST_F(EventLoopTest, StoppingDropsWhatWaits) {
  const auto held = std::make_shared<int>(0);
  loop.call_after(seconds(100), [held] {});
  loop.stop();
  loop.post([held] {});
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace atl::net
