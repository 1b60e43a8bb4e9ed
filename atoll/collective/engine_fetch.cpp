// What this member has missed, it asks the others for; what they have missed, it gives them.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/engine.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

/// No codec takes more for a value; each blob has a few bytes more.
constexpr uint64_t kMaxBytesPerValue = 16;
constexpr uint64_t kMaxBlobOverhead = 4096;
constexpr size_t kLeastResults = 2;  // Kept, however large.
constexpr size_t kMaxUnanswered = 256;

bool has_weight(const swarm::Commit& commit) {
  return std::ranges::any_of(commit.weights, [](int64_t weight) { return weight > 0; });
}

size_t most_result_bytes(const swarm::Commit& commit) {
  const auto count = static_cast<uint64_t>(commit.count);
  const uint64_t segments = count / static_cast<uint64_t>(commit.segment_values) + 1;
  return commit.members.size() * (count * kMaxBytesPerValue + segments * kMaxBlobOverhead);
}

}  // namespace

void Engine::miss(const swarm::Commit& message, Time now) {
  held_[message.held.fragment] = message.held;
  Missing& missing = missing_[message.index];
  missing.commit = message;
  const auto begun = rounds_.find(message.held.round);
  if (begun != rounds_.end()) let_go(begun->second, message);
  const bool is_measurement =
      message.held.fragment == swarm::kNoFragment && !rounds_.contains(message.held.round);
  if (!has_weight(message) || is_measurement) {
    missing.record = record_of(message, {});
  } else {
    retrievals_.push_back(Retrieval::of_result(message.held.fragment, message.held.round,
                                               most_result_bytes(message)));
    retrievals_.back().set_progressed(now);
  }
  ask_around(now);
  hand_on_missed(now);
}

void Engine::let_go(Round& round, const swarm::Commit& message) {
  // The new residual is of the attempt that was committed, or what this member summed is in none.
  const bool is_of_it =
      round.exchange != nullptr && round.exchange->plan().header.attempt == message.header.attempt;
  if (is_of_it) {
    round.exchange->settle_residual();
  } else {
    std::ranges::copy(round.contribution->mean_residual,
                      round.contribution->new_mean_residual.begin());
  }
  round.decided = true;
  round.exchange = nullptr;  // A job that is out has it too.
  round.next.reset();
  round.early.clear();
  drop_transfers(message.held.round, [](const Transfer&) { return true; });
}

/// In the order of the commits, each once its result is here and no job works on its buffers.
void Engine::hand_on_missed(Time now) {
  while (!missing_.empty() && missing_.begin()->second.record && !over_) {
    Missing& missing = missing_.begin()->second;
    const swarm::Commit& message = missing.commit;
    const int64_t number = message.held.round;
    if (preparing_ && preparing_->round == number) return;
    const auto own = std::ranges::find(message.members, member_.number());
    Commit commit{.round = number,
                  .fragment = message.held.fragment,
                  .step = message.held.step,
                  .digest = message.held.digest,
                  .included = own != message.members.end(),
                  .stop = message.stop};
    const auto round = rounds_.find(number);
    const bool begun = round != rounds_.end();
    const bool is_begun_with_weight = begun && round->second.contribution->weight > 0;
    const std::vector<float> factors = coefficients(message.weights);
    for (size_t rank = 0; rank < message.members.size(); ++rank) {
      const auto found = names_.find(message.members[rank]);
      commit.members.push_back(found == names_.end() ? std::string("?") : found->second);
      if (message.weights[rank] == 0) commit.abstainers.push_back(commit.members.back());
      if (message.members[rank] != member_.number()) continue;
      commit.own_share = factors[rank];
      commit.left_out = is_begun_with_weight && message.weights[rank] == 0;
    }
    commit.record = std::move(missing.record);
    commit.missed = true;
    if (begun) {
      commit.bytes_sent = round->second.bytes_sent;
      commit.bytes_received = round->second.bytes_received;
      commit.seconds = seconds(now - round->second.begun);
      rounds_.erase(round);
    }
    const bool is_measurement = message.held.fragment == swarm::kNoFragment;
    missing_.erase(missing_.begin());
    if (begun || !is_measurement) listener_.committed(commit, begun);
  }
  if (missing_.empty() && state_fetches_.empty() && member_.is_member()) {
    act(member_.caught_up(), now);
  }
}

/// Asks whoever may have it for what is still missing: states first. While one is on its way rounds
/// go on; which of their results it will have in it shows when it is here.
void Engine::ask_around(Time now) {
  if (over_) return;
  for (Retrieval& retrieval : retrievals_) {
    const bool is_state = retrieval.kind() == swarm::PartKind::kState;
    if (!is_state && !state_fetches_.empty()) continue;
    bool anybody = false;
    for (auto& [number, link] : links_) {
      // Who is out of reach may hold a result that nobody else has; for a state there is a newer.
      const bool is_out = is_state ? retrieval.has_refused(number) || !link.lost.empty()
                                   : retrieval.never_holds(number);
      anybody = anybody || !is_out;
      while (link.opened && link.lost.empty()) {
        auto request = retrieval.request_to(number, now);
        if (!request) break;
        request->header = member_.header(retrieval.round());
        if (transport_.send(link.connection, swarm::encode(*request)) != net::Sent::kAccepted) {
          retrieval.lost(number);
          break;
        }
      }
    }
    if (anybody) continue;
    // Those who held it have gone on, or are gone. A newer state will do as well; a past round not.
    const int32_t fragment = retrieval.fragment();
    if (is_state && held_.at(fragment).round > retrieval.round()) {
      fetch_held(fragment);
      return ask_around(now);
    }
    if (!is_state) return give_up(nobody_holds(retrieval), swarm::Ending::kMembership);
  }
}

std::string Engine::nobody_holds(const Retrieval& retrieval) {
  return fmt::format("nobody holds the result of round {} any more, which this island has missed",
                     retrieval.round());
}

void Engine::ask_again(Time now) {
  leave_silent_donors(now);
  bool any = false;
  for (Retrieval& retrieval : retrievals_) {
    const bool is_asked = std::ranges::any_of(links_, [&](const auto& entry) {
      return entry.second.opened && entry.second.lost.empty() &&
             !retrieval.has_refused(entry.first);
    });
    const bool is_result = retrieval.kind() == swarm::PartKind::kResult;
    if (is_result && !state_fetches_.empty()) {
      retrieval.set_progressed(now);  // Its turn has not come.
    } else if (is_result && now - retrieval.progressed() > 2 * options_.silence_timeout) {
      return give_up(nobody_holds(retrieval), swarm::Ending::kMembership);
    }
    if (!is_asked) any = retrieval.forgive() || any;  // Each in turn.
  }
  if (any) ask_around(now);
}

/// Their links stand and carry nothing: others are asked.
void Engine::leave_silent_donors(Time now) {
  std::set<int32_t> silent;
  for (Retrieval& retrieval : retrievals_) {
    for (const int32_t number : retrieval.silent_since(now - options_.silence_timeout)) {
      retrieval.refused(number, /*never=*/false);
      silent.insert(number);
    }
  }
  for (const int32_t number : silent) {
    const bool stands = links_.contains(number) && links_.at(number).lost.empty();
    if (stands) {
      drop_link(number,
                fmt::format("nothing came for {:.0f} s of what it was asked for",
                            seconds(options_.silence_timeout)),
                now);
    }
  }
}

void Engine::fetch_state(int32_t fragment, size_t size, Time now) {
  if (over_) return;
  if (!held_.contains(fragment)) {
    return listener_.fetched(fragment, failure("the run has no such fragment"));
  }
  state_fetches_[fragment].size = size;
  fetch_held(fragment);
  ask_around(now);
}

/// Begins, or begins anew, to fetch the newest state of a fragment.
void Engine::fetch_held(int32_t fragment) {
  StateFetch& fetch = state_fetches_.at(fragment);
  fetch.held = held_.at(fragment);
  std::erase_if(retrievals_, [&](const Retrieval& retrieval) {
    return retrieval.kind() == swarm::PartKind::kState && retrieval.fragment() == fragment;
  });
  retrievals_.push_back(Retrieval::of_state(fragment, fetch.held.round, fetch.size));
}

void Engine::take_fetched(int32_t number, const swarm::Part& part, std::span<const std::byte> data,
                          Time now) {
  const auto found = std::ranges::find_if(retrievals_, [&](const Retrieval& retrieval) {
    return retrieval.kind() == part.kind && retrieval.round() == part.header.round &&
           retrieval.fragment() == part.segment;
  });
  member_.count_moved(data.size());
  if (found == retrievals_.end()) return;  // It is not wanted any more.
  if (auto taken = found->receive(number, part, data, now); !taken) {
    return accuse(number, fmt::format("island '{}': {}", name(number), taken.error().message), now);
  }
  if (found->complete()) {
    Retrieval done = std::move(*found);
    retrievals_.erase(found);
    finish(done, now);
  }
  ask_around(now);
}

void Engine::finish(Retrieval& retrieval, Time now) {
  if (retrieval.kind() == swarm::PartKind::kState) {
    const auto fetch = state_fetches_.find(retrieval.fragment());
    if (fetch == state_fetches_.end()) return;
    const swarm::Held held = fetch->second.held;
    state_fetches_.erase(fetch);
    // What the state includes already is not missing.
    std::erase_if(missing_, [&](const auto& entry) {
      const swarm::Held& other = entry.second.commit.held;
      return other.fragment == held.fragment && other.round <= held.round;
    });
    std::erase_if(retrievals_, [&](const Retrieval& other) {
      return other.kind() == swarm::PartKind::kResult && other.fragment() == held.fragment &&
             other.round() <= held.round;
    });
    listener_.fetched(held.fragment, FetchedState{.round = held.round,
                                                  .step = held.step,
                                                  .digest = held.digest,
                                                  .bytes = retrieval.take()});
    return hand_on_missed(now);
  }
  for (auto& [index, missing] : missing_) {
    if (missing.commit.held.round != retrieval.round() ||
        missing.commit.held.fragment != retrieval.fragment()) {
      continue;
    }
    const Bytes bytes = retrieval.take();
    try {
      missing.record = record_of(missing.commit, decode_result(bytes));
    } catch (const InputError& error) {
      return give_up(
          fmt::format("the result of round {} cannot be read: {}", retrieval.round(), error.what()),
          swarm::Ending::kMembership);
    }
    keep_result(missing.record);
    break;
  }
  hand_on_missed(now);
}

void Engine::refused(int32_t number, const swarm::NotHeld& answer, Time now) {
  for (Retrieval& retrieval : retrievals_) {
    if (retrieval.kind() == answer.kind && retrieval.round() == answer.header.round &&
        retrieval.fragment() == answer.fragment) {
      retrieval.refused(number, answer.never);
    }
  }
  ask_around(now);
}

void Engine::answer(int32_t number, const swarm::Fetch& fetch, Time now) {
  if (fetch.kind == swarm::PartKind::kState) return answer_state(number, fetch, now);
  const auto found = results_.find(fetch.header.round);
  if (fetch.kind != swarm::PartKind::kResult || found == results_.end()) {
    return deny(number, fetch);
  }
  const auto blob = std::make_shared<const Bytes>(encode(found->second->result));
  swarm::Fetch whole = fetch;
  whole.begin = 0;
  whole.end = blob->size();
  lend_piece(number, whole, blob, now);
}

/// From a copy of the state as it was after the round, for this member goes on meanwhile.
void Engine::answer_state(int32_t number, const swarm::Fetch& fetch, Time now) {
  keep_snapshots(now);  // It will ask for all.
  const auto found = snapshots_.find(fetch.fragment);
  if (found != snapshots_.end() && found->second.round == fetch.header.round) {
    return lend_piece(number, fetch, found->second.bytes, now);
  }
  if (!provider_) return deny(number, fetch);
  if (unanswered_.size() >= kMaxUnanswered) return deny(number, fetch);
  unanswered_.emplace_back(number, fetch);
  if (copying_) return;
  copying_ = fetch;
  listener_.copy([provide = provider_, fragment = fetch.fragment, round = fetch.header.round] {
    return provide(fragment, round);
  });
}

void Engine::keep_snapshots(Time now) {
  for (auto& [fragment, snapshot] : snapshots_) snapshot.used = now;
}

void Engine::copied(std::shared_ptr<const Bytes> state, Time now) {
  ATOLL_CHECK(copying_.has_value(), "a job is out");
  const swarm::Fetch copied = *std::exchange(copying_, std::nullopt);
  if (over_) return;
  const bool is_here = state != nullptr;
  if (is_here) {
    snapshots_[copied.fragment] = {
        .round = copied.header.round, .bytes = std::move(state), .used = now};
  }
  for (const auto& [number, fetch] : std::exchange(unanswered_, {})) {
    const auto link = links_.find(number);
    if (link == links_.end() || !link->second.opened) continue;  // Lost by an answer before.
    const bool is_it =
        fetch.fragment == copied.fragment && fetch.header.round == copied.header.round;
    if (is_it && !is_here) {
      deny(number, fetch);
    } else {
      answer_state(number, fetch, now);
    }
    if (over_) return;
  }
}

void Engine::forget_requests_of(int32_t number) {
  std::erase_if(unanswered_, [&](const auto& request) { return request.first == number; });
}

void Engine::deny(int32_t number, const swarm::Fetch& fetch) {
  // What is committed here without a result may come yet.
  const int64_t round = fetch.header.round;
  const auto held = held_.find(fetch.fragment);
  const bool is_known = held != held_.end() && held->second.round >= round;
  const bool is_missing = std::ranges::any_of(
      missing_, [&](const auto& entry) { return entry.second.commit.held.round == round; });
  const bool never = fetch.kind == swarm::PartKind::kResult && is_known && !is_missing;
  static_cast<void>(transport_.send(links_.at(number).connection,
                                    swarm::encode(swarm::NotHeld{.header = member_.header(round),
                                                                 .kind = fetch.kind,
                                                                 .fragment = fetch.fragment,
                                                                 .never = never})));
}

void Engine::lend_piece(int32_t number, const swarm::Fetch& fetch,
                        std::shared_ptr<const Bytes> blob, Time now) {
  const size_t size = blob->size();
  if (fetch.begin >= fetch.end || fetch.end > size) return deny(number, fetch);
  links_.at(number).lent.push_back({.part = {.header = member_.header(fetch.header.round),
                                             .kind = fetch.kind,
                                             .sender = member_.number(),
                                             .receiver = number,
                                             .segment = fetch.fragment,
                                             .total = size},
                                    .blob = std::move(blob),
                                    .sent = fetch.begin,
                                    .end = fetch.end});
  pump(number, now);
}

void Engine::keep_result(const std::shared_ptr<const CommittedRound>& committed) {
  results_[committed->round] = committed;
  result_bytes_ += committed->result.size_bytes();
  // Who is fetching a state will want the results behind it; when those have become more than the
  // state itself, to join again with a newer one is the shorter way.
  size_t most = options_.result_log_bytes;
  for (const auto& [fragment, snapshot] : snapshots_) most += snapshot.bytes->size();
  while (results_.size() > kLeastResults && result_bytes_ > most) {
    result_bytes_ -= results_.begin()->second->result.size_bytes();
    results_.erase(results_.begin());
  }
}

}  // namespace atl::collective
