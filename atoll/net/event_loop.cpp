#include "atoll/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "atoll/base/check.h"

namespace atl::net {
namespace {
constexpr int kMaxReady = 64;  // Told at once; more are told in the next turn.
}  // namespace

EventLoop::EventLoop(const Clock& clock)
    : clock_(clock),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  ATOLL_CHECK(epoll_.get() >= 0 && wakeup_.get() >= 0, "no descriptors are left for a loop");
  control(EPOLL_CTL_ADD, wakeup_.get(), EPOLLIN, 0);
  thread_ = std::thread([this] { run(); });
}

void EventLoop::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  watched_.clear();
  // What tasks hold may post again when it goes: not under the lock.
  std::vector<Task> posted;
  std::multimap<Time, Task> timers;
  {
    const MutexLock lock(mutex_);
    posted.swap(posted_);
    timers.swap(timers_);
  }
}

void EventLoop::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(wakeup_.get(), &one, sizeof one);
}

void EventLoop::post(Task task) {
  bool is_first = false;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    is_first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (is_first && std::this_thread::get_id() != thread_.get_id()) wake();
}

void EventLoop::call_after(Duration delay, Task task) {
  bool is_next = false;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    const auto added = timers_.emplace(clock_.now() + delay, std::move(task));
    is_next = added == timers_.begin();
  }
  if (is_next && std::this_thread::get_id() != thread_.get_id()) wake();
}

void EventLoop::control(int operation, int descriptor, uint32_t events, uint32_t number) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = uint64_t{number} << 32 | static_cast<uint32_t>(descriptor);
  ::epoll_ctl(epoll_.get(), operation, descriptor, &event);
}

void EventLoop::watch(int descriptor, uint32_t events, OnReady on_ready) {
  watched_[descriptor] = {++last_number_, std::make_shared<OnReady>(std::move(on_ready))};
  control(EPOLL_CTL_ADD, descriptor, events, last_number_);
}

void EventLoop::rewatch(int descriptor, uint32_t events) {
  control(EPOLL_CTL_MOD, descriptor, events, watched_.at(descriptor).number);
}

void EventLoop::forget(int descriptor) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  watched_.erase(descriptor);
}

int EventLoop::patience_ms() {
  const MutexLock lock(mutex_);
  if (!posted_.empty() || stopping_) return 0;
  if (timers_.empty()) return -1;
  const Duration left = timers_.begin()->first - clock_.now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) std::exchange(task, {})();
}

void EventLoop::run_due() {
  while (true) {
    Task task;
    {
      const MutexLock lock(mutex_);
      if (timers_.empty() || timers_.begin()->first > clock_.now()) return;
      task = std::move(timers_.extract(timers_.begin()).mapped());
    }
    task();
  }
}

void EventLoop::run() {
  std::array<epoll_event, kMaxReady> ready{};
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    const int count = ::epoll_wait(epoll_.get(), ready.data(), kMaxReady, patience_ms());
    for (int i = 0; i < count; ++i) {
      const auto descriptor = static_cast<int>(ready[i].data.u64 & 0xffffffff);
      if (descriptor == wakeup_.get()) {
        uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t got = ::read(descriptor, &ignored, sizeof ignored);
        continue;
      }
      const auto found = watched_.find(descriptor);
      // Forgotten in this turn, and perhaps another of that number by now.
      if (found == watched_.end() || found->second.number != ready[i].data.u64 >> 32) continue;
      const auto on_ready = found->second.on_ready;  // It may forget itself.
      (*on_ready)(ready[i].events);
    }
    run_posted();
    run_due();
  }
}

}  // namespace atl::net
