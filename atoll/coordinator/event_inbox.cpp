#include "atoll/coordinator/event_inbox.h"

#include <algorithm>
#include <utility>

namespace atl::swarm {
namespace {

/// Empty frames count too.
size_t size_of(const net::Received& received) { return sizeof(net::Event) + received.frame.size(); }

}  // namespace

void EventInbox::push(net::Event event) {
  const MutexLock lock(mutex_);
  if (const auto* received = std::get_if<net::Received>(&event)) {
    if (cut_.contains(received->connection)) return;
    bytes_of_[received->connection] += size_of(*received);
    num_bytes_ += size_of(*received);
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    cut_.erase(lost->connection);
  }
  events_.push_back(std::move(event));
  while (num_bytes_ > max_bytes_) cut_greediest();
  arrived_.notify_one();
}

void EventInbox::cut_greediest() {
  const auto most = std::ranges::max_element(
      bytes_of_, [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto [connection, num_bytes] = *most;
  bytes_of_.erase(most);
  num_bytes_ -= num_bytes;
  std::erase_if(events_, [&](const net::Event& event) {
    const auto* received = std::get_if<net::Received>(&event);
    return received != nullptr && received->connection == connection;
  });
  cut_.insert(connection);
  greedy_.push_back(connection);
}

std::optional<net::Event> EventInbox::pop(Duration patience) {
  MutexLock lock(mutex_);
  arrived_.wait_for(lock, patience,
                    [&]() ATOLL_REQUIRES(mutex_) { return !events_.empty() || !greedy_.empty(); });
  if (events_.empty() || !greedy_.empty()) return std::nullopt;
  net::Event event = std::move(events_.front());
  events_.pop_front();
  if (const auto* received = std::get_if<net::Received>(&event)) {
    num_bytes_ -= size_of(*received);
    const auto held = bytes_of_.find(received->connection);
    held->second -= size_of(*received);
    if (held->second == 0) bytes_of_.erase(held);
  }
  return event;
}

std::vector<net::ConnectionId> EventInbox::take_greedy() {
  const MutexLock lock(mutex_);
  return std::exchange(greedy_, {});
}

}  // namespace atl::swarm
