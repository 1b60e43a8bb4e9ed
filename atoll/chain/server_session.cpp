#include "atoll/chain/server_session.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"

namespace atl::chain {

ServerSession::ServerSession(SessionId id, Span layers, int64_t num_restored)
    : id_(id),
      length_(num_restored),
      arrived_(num_restored),
      kept_begin_(num_restored),
      restored_layers_(layers),
      received_(static_cast<size_t>(num_restored)),
      made_(static_cast<size_t>(num_restored)) {}

ServerSession::ServerSession(SessionId id, const ServerSession& other, int64_t num_shared)
    : id_(id),
      adapter_(other.adapter_),
      shares_with_(other.id_.number),
      num_shared_(num_shared),
      length_(other.length_),
      arrived_(other.length_),
      kept_(other.kept_),
      kept_begin_(other.kept_begin_),
      received_(other.received_),
      made_(other.made_),
      keeps_(other.keeps_),
      kept_bytes_(other.kept_bytes_) {
  go_back(num_shared);
}

void ServerSession::go_back(int64_t position) {
  const auto cut_off = [&](std::deque<Rows>& list) {
    while (!list.empty() && list.back().end() > position) {
      Rows rest = cut(std::move(list.back()), 0, position);
      list.pop_back();
      if (rest.num_tokens > 0) list.push_back(std::move(rest));
    }
  };
  cut_off(unread_);
  cut_off(kept_);
  kept_bytes_ = 0;
  for (const Rows& rows : kept_) kept_bytes_ += num_bytes(rows);
  kept_begin_ = std::min(kept_begin_, position);
  arrived_ = std::min(arrived_, position);
  length_ = std::min(length_, position);
  if (position < num_shared_) num_shared_ = shares_with_ = 0;
  for (auto* seen : {&received_, &made_}) {
    seen->resize(std::min(seen->size(), static_cast<size_t>(length_)));
  }
}

std::optional<std::vector<Message>> ServerSession::adopt(const ServerSession& other,
                                                         int64_t num_shared) {
  ATOLL_CHECK(length_ < num_shared && num_shared <= arrived_ && num_shared <= other.length_);
  if (other.kept_begin_ > 0) return std::nullopt;  // It has not seen its first rows itself.
  const bool is_kept = other.keeps_ && hops_.size() > 1;
  if (!is_kept && hops_.front().send_from < num_shared) return std::nullopt;
  ServerSession begun(id_, other, num_shared);
  shares_with_ = other.id_.number;
  num_shared_ = num_shared;
  const int64_t before = std::exchange(length_, num_shared);
  while (!unread_.empty() && unread_.front().end() <= length_) unread_.pop_front();
  kept_ = std::move(begun.kept_);
  kept_bytes_ = begun.kept_bytes_;
  keeps_ = other.keeps_;
  received_ = std::move(begun.received_);
  made_ = std::move(begun.made_);
  return kept_from(before);
}

void ServerSession::note(const std::vector<Fingerprint>& received,
                         const std::vector<Fingerprint>& made) {
  received_.insert(received_.end(), received.begin(), received.end());
  made_.insert(made_.end(), made.begin(), made.end());
}

Testimony ServerSession::testify(const Testify& question) const {
  const auto first = [&](const std::vector<Fingerprint>& seen) {
    return std::vector(seen.begin(),
                       seen.begin() + std::min<int64_t>(question.end, std::ssize(seen)));
  };
  return {
      .session = id_, .audit = question.audit, .received = first(received_), .made = first(made_)};
}

ServerSession::Taken ServerSession::take(Work work) {
  if (!hops_.empty() && work.hops.front().layers != layers()) {
    if (work.epoch <= epoch_) return Taken::kGood;  // By a route that is no more.
    go_back(0);                                     // It has got other layers of the chain.
    keeps_ = true;
  }
  if (!hops_.empty() && work.rows.precision != precision_) return Taken::kOther;
  if (hops_.empty() || work.epoch > epoch_) {
    const std::string before = next();
    const bool is_new = hops_.empty();
    if (is_new && restored_layers_) {
      const Hop& own = work.hops.front();
      go_back(own.layers == *restored_layers_ ? std::min(length_, own.restored) : 0);
    }
    epoch_ = work.epoch;
    adapter_ = work.adapter;
    hops_ = std::move(work.hops);
    // Its gateway says so as well (Reroute), but that may come later than these rows.
    if (!is_new && next() != before && can_resend()) {
      rerouted_ = epoch_;
      again_ = kept_from(hops_.size() > 1 ? hops_[1].restored : 0);
    }
  }
  precision_ = work.rows.precision;
  if (work.branch < branch_) return Taken::kGood;
  if (work.branch > branch_) {
    go_back(work.rows.begin);
    branch_ = work.branch;
  }
  if (work.rows.begin > arrived_) return Taken::kGap;
  const int64_t end = work.rows.end();
  Rows news = cut(std::move(work.rows), arrived_, end);
  if (news.num_tokens == 0) return Taken::kGood;
  arrived_ = news.end();
  unread_.push_back(std::move(news));
  return Taken::kGood;
}

int64_t ServerSession::unread_bytes() const {
  int64_t bytes = 0;
  for (const Rows& rows : unread_) bytes += num_bytes(rows);
  return bytes;
}

int64_t ServerSession::num_readable(int64_t order_bytes) const {
  int64_t bytes = 0;
  for (const Rows& rows : unread_) {
    for (size_t i = 0; i < rows.orders.size(); ++i) {
      const int64_t position = rows.begin + static_cast<int64_t>(i);
      if (position < length_) continue;
      bytes += static_cast<int64_t>(decoding::num_bytes(rows.orders[i]));
      if (bytes > order_bytes) return std::max<int64_t>(position - length_, 1);
    }
  }
  return num_unread();
}

std::vector<Rows> ServerSession::unread(int64_t count) const {
  std::vector<Rows> rows;
  for (const Rows& each : unread_) {
    if (each.begin >= length_ + count) break;
    rows.push_back(cut(each, length_, length_ + count));
  }
  return rows;
}

std::optional<Message> ServerSession::read(Rows made) {
  ATOLL_CHECK(made.begin == length_ && made.end() <= arrived_, "it was unread");
  length_ = made.end();
  while (!unread_.empty() && unread_.front().end() <= length_) unread_.pop_front();
  keep(made);
  return sent_on(std::move(made));
}

std::optional<Message> ServerSession::sent_on(Rows made) const {
  const int64_t end = made.end();
  made = cut(std::move(made), hops_.front().send_from, end);
  if (hops_.size() == 1) {
    return Output{.session = id_, .epoch = epoch_, .branch = branch_, .rows = std::move(made)};
  }
  if (made.num_tokens == 0) return std::nullopt;
  return Work{.session = id_,
              .epoch = epoch_,
              .branch = branch_,
              .shares_with = shares_with_,
              .num_shared = num_shared_,
              .adapter = adapter_,
              .hops = {hops_.begin() + 1, hops_.end()},
              .rows = std::move(made)};
}

void ServerSession::keep(const Rows& made) {
  if (!keeps_ || hops_.size() == 1) return;  // The gateway has what the last one made.
  kept_bytes_ += num_bytes(made);
  kept_.push_back(made);
  if (made.orders.empty()) return;
  // What was drawn that far behind its gateway knows: nobody draws it again.
  for (auto rows = kept_.begin(); rows->end() + kMostAhead < made.begin; ++rows) {
    const bool draws = std::ranges::any_of(rows->orders, [](const decoding::Order& order) {
      return order.wanted == decoding::Wanted::kToken;
    });
    if (!draws) continue;
    kept_bytes_ -= num_bytes(*rows);
    for (decoding::Order& order : rows->orders) {
      if (order.wanted == decoding::Wanted::kToken) order = {};
    }
    kept_bytes_ += num_bytes(*rows);
  }
}

std::optional<std::vector<Message>> ServerSession::reroute(const Reroute& message) {
  // Rows that came by the new route may have told of it before.
  if (message.epoch <= rerouted_ || message.epoch < epoch_) return std::vector<Message>();
  const bool is_here = !hops_.empty() && message.hops.front().layers == layers();
  if (!is_here || message.hops.size() == 1) return std::nullopt;
  if (!keeps_ || message.hops[1].restored < kept_begin_) return std::nullopt;
  hops_ = message.hops;
  rerouted_ = epoch_ = message.epoch;
  return kept_from(hops_[1].restored);
}

bool ServerSession::can_resend() const {
  return keeps_ && (hops_.size() == 1 || hops_[1].restored >= kept_begin_);
}

std::vector<Message> ServerSession::kept_from(int64_t begin) const {
  std::vector<Message> all;
  for (const Rows& rows : kept_) {
    if (rows.end() <= begin) continue;
    if (auto sent = sent_on(cut(rows, begin, rows.end()))) all.push_back(*std::move(sent));
  }
  return all;
}

void ServerSession::rest() {
  rests_ = true;
  unread_.clear();
  arrived_ = length_;
}

void ServerSession::stop_keeping() {
  keeps_ = false;
  kept_.clear();
  kept_bytes_ = 0;
}

void ForgottenSessions::add(const Forget& message) {
  const auto [entry, is_new] = epochs_.try_emplace(message.session, message.epoch);
  entry->second = std::max(entry->second, message.epoch);
  if (!is_new) return;
  order_.push_back(message.session);
  if (order_.size() <= kMost) return;
  epochs_.erase(order_.front());
  order_.pop_front();
}

bool ForgottenSessions::has(const SessionId& id, uint32_t epoch) const {
  const auto entry = epochs_.find(id);
  return entry != epochs_.end() && epoch <= entry->second;
}

}  // namespace atl::chain
