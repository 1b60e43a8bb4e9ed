#pragma once
// Pieces of a model for servers that lack them, by a thread of its own: reading texts goes first.
// So the thread has the lowest priority, and keeps to a rate.
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/peer_lines.h"
#include "atoll/net/transport.h"

namespace atl::serve {

struct PartLenderOptions {
  /// What is here of it; nothing where it is not. Called by one thread; null: nothing ever is.
  std::function<std::optional<Bytes>(const chain::Want&)> read;
  double bits_per_second = 0;  // 0: any.
  /// Of who says nothing of a rate, while texts are read.
  double busy_bits_per_second = 200e6;
};

/// Thread-safe.
class PartLender {
 public:
  static constexpr size_t kMostWaiting = 16;  // Questions of one line.

  /// `is_busy`: texts are read here. All outlive it.
  PartLender(PartLenderOptions options, chain::PeerLines& lines, const Clock& clock,
             std::function<bool()> is_busy);
  ~PartLender();
  PartLender(const PartLender&) = delete;
  PartLender& operator=(const PartLender&) = delete;

  /// False: too many of that line wait.
  [[nodiscard]] bool ask(net::ConnectionId line, chain::Want want);
  /// The line is gone.
  void forget(net::ConnectionId line);

 private:
  void run();
  /// The bytes that were sent.
  size_t answer(net::ConnectionId line, const chain::Want& want);

  const PartLenderOptions options_;
  chain::PeerLines& lines_;
  const Clock& clock_;
  const std::function<bool()> is_busy_;
  Mutex mutex_;
  Condition changed_;
  std::deque<std::pair<net::ConnectionId, chain::Want>> waiting_ ATOLL_GUARDED_BY(mutex_);
  bool is_ending_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::serve
