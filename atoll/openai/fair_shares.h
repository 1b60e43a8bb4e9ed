#pragma once
// Whose request is next when more come than can be answered at once: each key's requests in their
// order, and of several keys the one with the least at work for its share. Pure; of one thread.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace atl::openai {

class FairShares {
 public:
  struct Limits {
    int64_t running = 64;    // Texts that are made at once.
    int64_t waiting = 1024;  // Requests; of several keys none has more than half of them.
    int64_t waiting_bytes = int64_t{256} << 20;  // Of their bodies; half of it, likewise.
  };
  using Ticket = uint64_t;

  /// A share for each key: one with twice another's gets twice as much when both want more.
  FairShares(Limits limits, std::vector<double> shares)
      : limits_(limits), keys_(shares.size()), shares_(std::move(shares)) {}

  /// For a request of so many texts and bytes. Nothing: too many wait already.
  std::optional<Ticket> apply(size_t key, int64_t texts, int64_t bytes);
  bool is_running(Ticket ticket) const { return running_.contains(ticket); }
  /// It is over, or nobody waits for it any more.
  void leave(Ticket ticket);

  int64_t num_running() const { return num_running_; }  // Texts.
  int64_t num_waiting() const { return num_waiting_; }  // Requests.

 private:
  struct Request {
    Ticket ticket = 0;
    size_t key = 0;
    int64_t texts = 0;
    int64_t bytes = 0;
  };
  struct Key {
    std::deque<Request> waiting;
    int64_t waiting_bytes = 0;
    int64_t num_running = 0;
    Ticket last = 0;  // That was let in: among equals the one that waits longest comes first.
  };
  bool has_room(const Key& key, int64_t bytes) const;
  void let_in();
  void wait_no_more(Key& key, const Request& request);
  std::optional<size_t> next_key() const;

  const Limits limits_;
  std::vector<Key> keys_;
  const std::vector<double> shares_;
  std::map<Ticket, Request> running_;
  int64_t num_running_ = 0;
  int64_t num_waiting_ = 0;
  int64_t waiting_bytes_ = 0;
  Ticket last_ticket_ = 0;
};

}  // namespace atl::openai
