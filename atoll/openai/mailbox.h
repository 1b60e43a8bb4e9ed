#pragma once
// From the generator's thread, which must not wait, to the one that answers a request. What lies
// here is at most what the request asked for.
#include <cstddef>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <variant>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/decoding/generator.h"
#include "atoll/openai/growing_text.h"

namespace atl::openai {

struct PromptRead {
  decoding::Listener::Cached cached;
  Piece repeated;  // Where the answer begins with the prompt.
};
struct TokenMade {
  Piece piece;
};
struct TextEnded {
  Piece rest;
  decoding::FinishReason reason = decoding::FinishReason::kStop;
};

struct Event {
  size_t choice = 0;
  Time when;
  std::variant<PromptRead, TokenMade, TextEnded, decoding::Refusal> what;
};

/// Thread-safe.
class Mailbox {
 public:
  void put(Event event) {
    {
      const MutexLock lock(mutex_);
      events_.push(std::move(event));
    }
    changed_.notify_one();
  }
  /// The next, within that patience.
  std::optional<Event> take(Duration patience) {
    MutexLock lock(mutex_);
    const bool is_there = changed_.wait_for(
        lock, patience, [&]() ATOLL_REQUIRES(mutex_) { return !events_.empty(); });
    if (!is_there) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop();
    return event;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::queue<Event> events_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::openai
