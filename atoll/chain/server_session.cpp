#include "atoll/chain/server_session.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"

namespace atl::chain {

void ServerSession::go_back(int64_t position) {
  const auto cut_off = [&](std::deque<Rows>& list) {
    while (!list.empty() && list.back().end() > position) {
      Rows rest = cut(std::move(list.back()), 0, position);
      list.pop_back();
      if (rest.num_tokens > 0) list.push_back(std::move(rest));
    }
  };
  cut_off(unread_);
  for (const Rows& rows : kept_) kept_bytes_ -= static_cast<int64_t>(rows.rows_TC.size());
  cut_off(kept_);
  for (const Rows& rows : kept_) kept_bytes_ += static_cast<int64_t>(rows.rows_TC.size());
  arrived_ = std::min(arrived_, position);
  length_ = std::min(length_, position);
}

bool ServerSession::take(Work work) {
  if (!hops_.empty() && work.hops.front().layers != layers()) {
    if (work.epoch <= epoch_) return true;  // By a route that is no more.
    go_back(0);                             // This server has got other layers of the chain.
    keeps_ = true;
  }
  if (hops_.empty() || work.epoch > epoch_) {
    epoch_ = work.epoch;
    hops_ = std::move(work.hops);
  }
  if (work.branch < branch_) return true;
  if (work.branch > branch_) {
    go_back(work.begin);
    branch_ = work.branch;
  }
  if (work.begin > arrived_) return false;
  const int64_t end = work.begin + work.num_tokens;
  Rows news = cut({.begin = work.begin,
                   .num_tokens = work.num_tokens,
                   .precision = work.precision,
                   .rows_TC = std::move(work.rows_TC)},
                  arrived_, end);
  if (news.num_tokens == 0) return true;
  arrived_ = news.end();
  precision_ = news.precision;
  unread_.push_back(std::move(news));
  return true;
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
    return Output{.session = id_,
                  .epoch = epoch_,
                  .branch = branch_,
                  .begin = made.begin,
                  .precision = made.precision,
                  .num_tokens = made.num_tokens,
                  .rows_TC = std::move(made.rows_TC)};
  }
  if (made.num_tokens == 0) return std::nullopt;
  return Work{.session = id_,
              .epoch = epoch_,
              .branch = branch_,
              .begin = made.begin,
              .hops = {hops_.begin() + 1, hops_.end()},
              .precision = made.precision,
              .num_tokens = made.num_tokens,
              .rows_TC = std::move(made.rows_TC)};
}

void ServerSession::keep(const Rows& made) {
  if (!keeps_ || hops_.size() == 1) return;  // The gateway has what the last one made.
  kept_bytes_ += static_cast<int64_t>(made.rows_TC.size());
  kept_.push_back(made);
}

std::optional<std::vector<Message>> ServerSession::reroute(const Reroute& message) {
  std::vector<Message> again;
  // Rows that came by the new route may have told of it before.
  if (message.epoch <= rerouted_ || message.epoch < epoch_) return again;
  const bool is_here = !hops_.empty() && message.hops.front().layers == layers();
  if (!is_here || !keeps_ || message.hops.size() == 1) return std::nullopt;
  rerouted_ = epoch_ = message.epoch;
  hops_ = message.hops;
  for (const Rows& rows : kept_) {
    if (auto sent = sent_on(rows)) again.push_back(*std::move(sent));
  }
  return again;
}

void ServerSession::stop_keeping() {
  keeps_ = false;
  kept_.clear();
  kept_bytes_ = 0;
}

void ForgottenSessions::add(const SessionId& id) {
  if (!ids_.insert(id).second) return;
  order_.push_back(id);
  if (order_.size() <= kMost) return;
  ids_.erase(order_.front());
  order_.pop_front();
}

}  // namespace atl::chain
