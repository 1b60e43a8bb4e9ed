#include "atoll/collective/lender.h"

#include "atoll/base/check.h"

namespace atl::collective {

void Lender::keep(const std::shared_ptr<const CommittedRound>& committed) {
  results_[committed->round] = committed;
  result_bytes_ += committed->result.size_bytes();
  // Who is fetching a state will want the results behind it; when those have become more than the
  // state itself, to join again with a newer one is the shorter way.
  size_t most = most_bytes_;
  for (const auto& [fragment, snapshot] : snapshots_) most += snapshot.bytes->size();
  while (results_.size() > kLeastResults && result_bytes_ > most) {
    result_bytes_ -= results_.begin()->second->result.size_bytes();
    results_.erase(results_.begin());
  }
}

std::optional<Lender::Answer> Lender::ask(int32_t number, const swarm::Fetch& fetch, Time now) {
  if (fetch.kind == swarm::PartKind::kState) return ask_state(number, fetch, now);
  const auto found = results_.find(fetch.header.round);
  if (fetch.kind != swarm::PartKind::kResult || found == results_.end()) {
    return Answer{number, fetch, nullptr};
  }
  const auto blob = std::make_shared<const Bytes>(encode(found->second->result));
  swarm::Fetch whole = fetch;
  whole.begin = 0;
  whole.end = blob->size();
  return piece(number, whole, blob);
}

/// From a copy of the state as it was after the round, for this member goes on meanwhile.
std::optional<Lender::Answer> Lender::ask_state(int32_t number, const swarm::Fetch& fetch,
                                                Time now) {
  lent(now);  // It will ask for all.
  const auto found = snapshots_.find(fetch.fragment);
  if (found != snapshots_.end() && found->second.round == fetch.header.round) {
    return piece(number, fetch, found->second.bytes);
  }
  if (!provider_ || unanswered_.size() >= kMaxUnanswered) return Answer{number, fetch, nullptr};
  unanswered_.emplace_back(number, fetch);
  if (!copying_) copying_ = fetch;
  return std::nullopt;
}

Lender::Answer Lender::piece(int32_t number, const swarm::Fetch& fetch,
                             std::shared_ptr<const Bytes> blob) {
  const bool has_it = fetch.begin < fetch.end && fetch.end <= blob->size();
  return {number, fetch, has_it ? std::move(blob) : nullptr};
}

CopyJob Lender::take_job() {
  if (!copying_ || std::exchange(is_out_, true)) return nullptr;
  return [provide = provider_, fragment = copying_->fragment, round = copying_->header.round] {
    return provide(fragment, round);
  };
}

std::vector<Lender::Answer> Lender::copied(std::shared_ptr<const Bytes> state, Time now) {
  ATOLL_CHECK(is_out_, "a job is out");
  is_out_ = false;
  const swarm::Fetch copied = *std::exchange(copying_, std::nullopt);
  const bool is_here = state != nullptr;
  if (is_here) {
    snapshots_[copied.fragment] = {
        .round = copied.header.round, .bytes = std::move(state), .used = now};
  }
  std::vector<Answer> answers;
  for (const auto& [number, fetch] : std::exchange(unanswered_, {})) {
    const bool is_it =
        fetch.fragment == copied.fragment && fetch.header.round == copied.header.round;
    if (is_it && !is_here) {
      answers.push_back({number, fetch, nullptr});
    } else if (auto answer = ask_state(number, fetch, now)) {
      answers.push_back(std::move(*answer));
    }
  }
  return answers;
}

void Lender::forget(int32_t number) {
  std::erase_if(unanswered_, [&](const Request& request) { return request.first == number; });
}

void Lender::lent(Time now) {
  for (auto& [fragment, snapshot] : snapshots_) snapshot.used = now;
}

void Lender::tick(Time now) {
  std::erase_if(snapshots_, [&](const auto& entry) { return now - entry.second.used > kPatience; });
}

}  // namespace atl::collective
