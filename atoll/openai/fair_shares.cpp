#include "atoll/openai/fair_shares.h"

#include <algorithm>
#include <utility>

namespace atl::openai {

bool FairShares::has_room(const Key& key, int64_t bytes) const {
  const int64_t parts = keys_.size() > 1 ? 2 : 1;
  return num_waiting_ < limits_.waiting && std::ssize(key.waiting) < limits_.waiting / parts &&
         waiting_bytes_ + bytes <= limits_.waiting_bytes &&
         key.waiting_bytes + bytes <= limits_.waiting_bytes / parts;
}

std::optional<FairShares::Ticket> FairShares::apply(size_t key, int64_t texts, int64_t bytes) {
  const bool must_wait = num_waiting_ > 0 || num_running_ + texts > limits_.running;
  if (must_wait && num_running_ > 0 && !has_room(keys_[key], bytes)) return std::nullopt;
  const Ticket ticket = ++last_ticket_;
  keys_[key].waiting.push_back({ticket, key, texts, bytes});
  keys_[key].waiting_bytes += bytes;
  waiting_bytes_ += bytes;
  ++num_waiting_;
  let_in();
  return ticket;
}

void FairShares::leave(Ticket ticket) {
  if (const auto found = running_.find(ticket); found != running_.end()) {
    keys_[found->second.key].num_running -= found->second.texts;
    num_running_ -= found->second.texts;
    running_.erase(found);
  } else {
    for (Key& key : keys_) {
      const auto waiting = std::ranges::find(key.waiting, ticket, &Request::ticket);
      if (waiting == key.waiting.end()) continue;
      wait_no_more(key, *waiting);
      key.waiting.erase(waiting);
      break;
    }
  }
  let_in();
}

void FairShares::wait_no_more(Key& key, const Request& request) {
  --num_waiting_;
  key.waiting_bytes -= request.bytes;
  waiting_bytes_ -= request.bytes;
}

void FairShares::let_in() {
  while (const auto key = next_key()) {
    const Request request = keys_[*key].waiting.front();
    // A large one waits for room, and all others for it: else it would wait for ever.
    if (num_running_ > 0 && num_running_ + request.texts > limits_.running) return;
    keys_[*key].waiting.pop_front();
    wait_no_more(keys_[*key], request);
    keys_[*key].num_running += request.texts;
    keys_[*key].last = ++last_ticket_;
    num_running_ += request.texts;
    running_[request.ticket] = request;
  }
}

std::optional<size_t> FairShares::next_key() const {
  std::optional<size_t> next;
  const auto standing = [this](size_t key) {
    return std::pair(static_cast<double>(keys_[key].num_running) / shares_[key], keys_[key].last);
  };
  for (size_t key = 0; key < keys_.size(); ++key) {
    if (keys_[key].waiting.empty()) continue;
    if (!next || standing(key) < standing(*next)) next = key;
  }
  return next;
}

}  // namespace atl::openai
