#include "atoll/openai/fair_shares.h"

#include <algorithm>
#include <utility>

namespace atl::openai {

std::optional<FairShares::Ticket> FairShares::apply(size_t key, int64_t texts) {
  const bool must_wait = num_waiting_ > 0 || num_running_ + texts > limits_.running;
  const bool is_full =
      num_waiting_ >= limits_.waiting || std::ssize(keys_[key].waiting) >= limits_.waiting_per_key;
  if (must_wait && num_running_ > 0 && is_full) return std::nullopt;
  const Ticket ticket = ++last_ticket_;
  keys_[key].waiting.push_back({ticket, key, texts});
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
      num_waiting_ -= static_cast<int64_t>(
          std::erase_if(key.waiting, [&](const Request& one) { return one.ticket == ticket; }));
    }
  }
  let_in();
}

void FairShares::let_in() {
  while (const auto key = next_key()) {
    const Request request = keys_[*key].waiting.front();
    // A large one waits for room, and all others for it: else it would wait for ever.
    if (num_running_ > 0 && num_running_ + request.texts > limits_.running) return;
    keys_[*key].waiting.pop_front();
    --num_waiting_;
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
