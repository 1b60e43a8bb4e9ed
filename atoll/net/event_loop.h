#pragma once
// A thread that waits for sockets and does what is due: all that happens to a socket happens on the
// loop that watches it, so what belongs to a socket needs no lock.
//
// Functions given to it must be quick. They may watch and forget descriptors, their own too.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/descriptor.h"
#include "atoll/base/mutex.h"

namespace atl::net {

class EventLoop {
 public:
  using Task = std::function<void()>;
  /// What the descriptor is ready for, as epoll says it (EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP).
  using OnReady = std::function<void(uint32_t ready)>;

  /// `clock` must outlive the loop.
  explicit EventLoop(const Clock& clock);
  ~EventLoop() { stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  /// Ends the thread; what waits or comes later is dropped. Not from the loop itself.
  void stop();

  /// From any thread: runs it on the loop, in the order given.
  void post(Task task);
  /// From any thread: runs it on the loop once the delay is over.
  void call_after(Duration delay, Task task);

  /// On the loop: `on_ready` is called whenever the descriptor is ready for one of `events`, until
  /// it is forgotten. Errors are told whatever `events` says.
  void watch(int descriptor, uint32_t events, OnReady on_ready);
  void rewatch(int descriptor, uint32_t events);
  void forget(int descriptor);

  Time now() const { return clock_.now(); }

 private:
  void run();
  void control(int operation, int descriptor, uint32_t events, uint32_t number) const;
  void wake() const;
  void run_due();
  void run_posted();
  int patience_ms();

  const Clock& clock_;
  Descriptor epoll_;
  Descriptor wakeup_;
  /// A descriptor's number is soon another's: what was said of the old one must not reach it.
  struct Watch {
    uint32_t number = 0;
    std::shared_ptr<OnReady> on_ready;
  };
  std::map<int, Watch> watched_;  // Of the loop's thread alone, like the next.
  uint32_t last_number_ = 0;
  Mutex mutex_;
  bool stopping_ ATOLL_GUARDED_BY(mutex_) = false;
  std::vector<Task> posted_ ATOLL_GUARDED_BY(mutex_);
  std::multimap<Time, Task> timers_ ATOLL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace atl::net
