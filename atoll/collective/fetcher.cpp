#include "atoll/collective/fetcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::collective {
namespace {

using swarm::PartKind;

/// No codec takes more for a value; each blob has a few bytes more.
constexpr uint64_t kMaxBytesPerValue = 16;
constexpr uint64_t kMaxBlobOverhead = 4096;

bool has_weight(const swarm::Commit& commit) {
  return std::ranges::any_of(commit.weights, [](int64_t weight) { return weight > 0; });
}

size_t most_result_bytes(const swarm::Commit& commit) {
  const auto count = static_cast<uint64_t>(commit.count);
  const uint64_t segments = count / static_cast<uint64_t>(commit.segment_values) + 1;
  return commit.members.size() * (count * kMaxBytesPerValue + segments * kMaxBlobOverhead);
}

tl::unexpected<Failure> nobody_holds(const Retrieval& retrieval) {
  return failure(
      fmt::format("nobody holds the result of round {} any more, which this island has missed",
                  retrieval.round()));
}

}  // namespace

void Fetcher::start(const swarm::Start& start) {
  for (const swarm::Held& held : start.held) {
    committed(held);
    if (start.joins) state_fetches_[held.fragment].held = held;
  }
}

void Fetcher::miss(const swarm::Commit& commit, Time now) {
  if (!has_weight(commit)) return pass_over(commit);
  committed(commit.held);
  missing_[commit.index].commit = commit;
  retrievals_.push_back(
      Retrieval::of_result(commit.held.fragment, commit.held.round, most_result_bytes(commit)));
  retrievals_.back().set_progressed(now);
}

void Fetcher::pass_over(const swarm::Commit& commit) {
  committed(commit.held);
  missing_[commit.index] = {commit, record_of(commit, {})};
}

bool Fetcher::fetch_state(int32_t fragment, size_t size) {
  if (!held_.contains(fragment)) return false;
  state_fetches_[fragment].size = size;
  fetch_held(fragment);
  return true;
}

void Fetcher::fetch_held(int32_t fragment) {
  StateFetch& fetch = state_fetches_.at(fragment);
  fetch.held = held_.at(fragment);
  std::erase_if(retrievals_, [&](const Retrieval& retrieval) {
    return retrieval.kind() == PartKind::kState && retrieval.fragment() == fragment;
  });
  retrievals_.push_back(Retrieval::of_state(fragment, fetch.held.round, fetch.size));
}

/// While a state is on its way rounds go on; which of their results it will have in it shows when
/// it is here.
Result<void> Fetcher::ask(std::span<const Donor> donors, const Ask& ask, Time now) {
  for (size_t i = 0; i < retrievals_.size(); ++i) {
    Retrieval& retrieval = retrievals_[i];
    const bool is_state = retrieval.kind() == PartKind::kState;
    if (!is_state && !state_fetches_.empty()) continue;
    if (ask_for(retrieval, donors, ask, now)) continue;
    if (!is_state) return nobody_holds(retrieval);
    // Those who held it have gone on, or are gone. A newer state will do as well.
    const int32_t fragment = retrieval.fragment();
    if (held_.at(fragment).round <= retrieval.round()) continue;
    fetch_held(fragment);
    return this->ask(donors, ask, now);
  }
  return {};
}

bool Fetcher::ask_for(Retrieval& retrieval, std::span<const Donor> donors, const Ask& ask,
                      Time now) {
  const bool is_state = retrieval.kind() == PartKind::kState;
  bool anybody = false;
  for (const Donor& donor : donors) {
    // Who is out of reach may hold a result that nobody else has; for a state there is a newer.
    const bool is_out = is_state ? retrieval.has_refused(donor.number) || donor.is_lost
                                 : retrieval.never_holds(donor.number);
    anybody = anybody || !is_out;
    while (donor.is_open) {
      auto request = retrieval.request_to(donor.number, now);
      if (!request) break;
      request->header.round = retrieval.round();
      if (!ask(donor.number, *request)) {
        retrieval.lost(donor.number);
        break;
      }
    }
  }
  return anybody;
}

Result<bool> Fetcher::retry(std::span<const Donor> donors, Duration patience, Time now) {
  bool any = false;
  for (Retrieval& retrieval : retrievals_) {
    const bool is_asked = std::ranges::any_of(donors, [&](const Donor& donor) {
      return donor.is_open && !retrieval.has_refused(donor.number);
    });
    const bool is_result = retrieval.kind() == PartKind::kResult;
    if (is_result && !state_fetches_.empty()) {
      retrieval.set_progressed(now);  // Its turn has not come.
    } else if (is_result && now - retrieval.progressed() > patience) {
      return nobody_holds(retrieval);
    }
    if (!is_asked) any = retrieval.forgive() || any;  // Each in turn.
  }
  return any;
}

std::set<int32_t> Fetcher::give_up_on_silent(Time since) {
  std::set<int32_t> silent;
  for (Retrieval& retrieval : retrievals_) {
    for (const int32_t number : retrieval.silent_since(since)) {
      retrieval.refused(number, /*never=*/false);
      silent.insert(number);
    }
  }
  return silent;
}

Result<Fetcher::Arrival> Fetcher::receive(int32_t number, const swarm::Part& part,
                                          std::span<const std::byte> data, Time now) {
  const auto found = std::ranges::find_if(retrievals_, [&](const Retrieval& retrieval) {
    return retrieval.kind() == part.kind && retrieval.round() == part.header.round &&
           retrieval.fragment() == part.segment;
  });
  if (found == retrievals_.end()) return Nothing{};  // It is not wanted any more.
  if (auto taken = found->receive(number, part, data, now); !taken) {
    return tl::unexpected(taken.error());
  }
  if (!found->complete()) return Nothing{};
  Retrieval done = std::move(*found);
  retrievals_.erase(found);
  return done.kind() == PartKind::kState ? state_arrived(done) : arrived(done);
}

Fetcher::Arrival Fetcher::state_arrived(Retrieval& retrieval) {
  const auto fetch = state_fetches_.find(retrieval.fragment());
  if (fetch == state_fetches_.end()) return Nothing{};
  const swarm::Held held = fetch->second.held;
  state_fetches_.erase(fetch);
  // What the state includes already is not missing.
  std::erase_if(missing_, [&](const auto& entry) {
    const swarm::Held& other = entry.second.commit.held;
    return other.fragment == held.fragment && other.round <= held.round;
  });
  std::erase_if(retrievals_, [&](const Retrieval& other) {
    return other.kind() == PartKind::kResult && other.fragment() == held.fragment &&
           other.round() <= held.round;
  });
  return State{held.fragment, FetchedState{.round = held.round,
                                           .step = held.step,
                                           .digest = held.digest,
                                           .bytes = retrieval.take()}};
}

Fetcher::Arrival Fetcher::arrived(Retrieval& retrieval) {
  for (auto& [index, missing] : missing_) {
    if (missing.commit.held.round != retrieval.round() ||
        missing.commit.held.fragment != retrieval.fragment()) {
      continue;
    }
    const Bytes bytes = retrieval.take();
    try {
      missing.record = record_of(missing.commit, decode_result(bytes));
    } catch (const InputError& error) {
      throw InputError(fmt::format("the result of round {} cannot be read: {}", retrieval.round(),
                                   error.what()));
    }
    return missing.record;
  }
  return Nothing{};
}

void Fetcher::refused(int32_t number, const swarm::NotHeld& answer) {
  for (Retrieval& retrieval : retrievals_) {
    if (retrieval.kind() == answer.kind && retrieval.round() == answer.header.round &&
        retrieval.fragment() == answer.fragment) {
      retrieval.refused(number, answer.never);
    }
  }
}

void Fetcher::lost(int32_t number) {
  for (Retrieval& retrieval : retrievals_) retrieval.lost(number);
}

const Fetcher::Missing* Fetcher::next() const {
  const bool is_here = !missing_.empty() && missing_.begin()->second.record != nullptr;
  return is_here ? &missing_.begin()->second : nullptr;
}

Fetcher::Missing Fetcher::take_next() {
  ATOLL_CHECK(next() != nullptr);
  return std::move(missing_.extract(missing_.begin()).mapped());
}

bool Fetcher::is_committed(int32_t fragment, int64_t round) const {
  const auto held = held_.find(fragment);
  return held != held_.end() && held->second.round >= round;
}

bool Fetcher::has_passed(int32_t fragment, int64_t round) const {
  return is_committed(fragment, round) && std::ranges::none_of(missing_, [&](const auto& entry) {
           return entry.second.commit.held.round == round;
         });
}

}  // namespace atl::collective
