// What this member has missed, it asks the others for; what they have missed, it gives them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/collective/engine.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {

void Engine::miss(const swarm::Commit& message, Time now) {
  const auto begun = rounds_.find(message.held.round);
  if (begun != rounds_.end()) let_go(begun->second, message);
  const bool is_measurement = message.held.fragment == swarm::kNoFragment;
  if (is_measurement && begun == rounds_.end()) {
    fetcher_.pass_over(message);
  } else {
    fetcher_.miss(message, now);
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
  links_.drop_transfers(message.held.round, [](const Transfer&) { return true; });
}

/// In the order of the commits, each once its result is here and no job works on its buffers.
void Engine::hand_on_missed(Time now) {
  while (fetcher_.next() != nullptr && !over_) {
    const int64_t number = fetcher_.next()->commit.held.round;
    if (preparing_ && preparing_->round == number) return;
    const auto found = rounds_.find(number);
    const bool begun = found != rounds_.end();
    const Fetcher::Missing missing = fetcher_.take_next();
    const Commit commit = missed_commit(missing, begun ? &found->second : nullptr, now);
    if (begun) rounds_.erase(found);
    const bool is_measurement = commit.fragment == swarm::kNoFragment;
    if (begun || !is_measurement) listener_.committed(commit, begun);
  }
  if (fetcher_.has_caught_up() && member_.is_member()) act(member_.caught_up(), now);
}

Commit Engine::missed_commit(const Fetcher::Missing& missing, const Round* begun, Time now) const {
  const swarm::Commit& message = missing.commit;
  Commit commit{
      .round = message.held.round,
      .fragment = message.held.fragment,
      .step = message.held.step,
      .digest = message.held.digest,
      .included = std::ranges::find(message.members, member_.number()) != message.members.end(),
      .record = missing.record,
      .missed = true,
      .stop = message.stop};
  const std::vector<float> factors = coefficients(message.weights);
  for (size_t rank = 0; rank < message.members.size(); ++rank) {
    const auto found = names_.find(message.members[rank]);
    commit.members.push_back(found == names_.end() ? std::string("?") : found->second);
    if (message.weights[rank] == 0) commit.abstainers.push_back(commit.members.back());
    if (message.members[rank] != member_.number()) continue;
    commit.own_share = factors[rank];
    commit.left_out =
        begun != nullptr && begun->contribution->weight > 0 && message.weights[rank] == 0;
  }
  if (begun != nullptr) {
    commit.bytes_sent = begun->bytes_sent;
    commit.bytes_received = begun->bytes_received;
    commit.seconds = seconds(now - begun->begun);
  }
  return commit;
}

std::vector<Fetcher::Donor> Engine::donors() const {
  std::vector<Fetcher::Donor> donors;
  for (const auto& [number, link] : links_.all()) {
    donors.push_back({.number = number, .is_open = link.is_open(), .is_lost = link.is_lost()});
  }
  return donors;
}

void Engine::ask_around(Time now) {
  if (over_) return;
  const auto ask = [this](int32_t number, swarm::Fetch fetch) {
    fetch.header = member_.header(fetch.header.round);
    return transport_.send(links_.find(number)->connection, swarm::encode(fetch)) ==
           net::Sent::kAccepted;
  };
  if (auto asked = fetcher_.ask(donors(), ask, now); !asked) {
    give_up(asked.error().message, swarm::Ending::kMembership);
  }
}

void Engine::ask_again(Time now) {
  // Their links stand and carry nothing: others are asked.
  for (const int32_t number : fetcher_.give_up_on_silent(now - options_.silence_timeout)) {
    const Link* const link = links_.find(number);
    if (link == nullptr || link->is_lost()) continue;
    drop_link(number,
              fmt::format("nothing came for {:.0f} s of what it was asked for",
                          seconds(options_.silence_timeout)),
              now);
  }
  const auto again = fetcher_.retry(donors(), 2 * options_.silence_timeout, now);
  if (!again) return give_up(again.error().message, swarm::Ending::kMembership);
  if (*again) ask_around(now);
}

void Engine::fetch_state(int32_t fragment, size_t size, Time now) {
  if (over_) return;
  if (!fetcher_.fetch_state(fragment, size)) {
    return listener_.fetched(fragment, failure("the run has no such fragment"));
  }
  ask_around(now);
}

void Engine::take_fetched(int32_t number, const swarm::Part& part, std::span<const std::byte> data,
                          Time now) {
  member_.count_moved(data.size());
  Result<Fetcher::Arrival> arrival;
  try {
    arrival = fetcher_.receive(number, part, data, now);
  } catch (const InputError& error) {
    return give_up(error.what(), swarm::Ending::kMembership);
  }
  if (!arrival) {
    return accuse(number, fmt::format("island '{}': {}", name(number), arrival.error().message),
                  now);
  }
  if (auto* const state = std::get_if<Fetcher::State>(&*arrival)) {
    listener_.fetched(state->fragment, std::move(state->state));
    hand_on_missed(now);
  } else if (const auto* const record = std::get_if<Fetcher::Record>(&*arrival)) {
    lender_.keep(*record);
    hand_on_missed(now);
  }
  ask_around(now);
}

void Engine::answer(int32_t number, const swarm::Fetch& fetch, Time now) {
  if (const auto answer = lender_.ask(number, fetch, now)) give(*answer, now);
  start_copy();
}

void Engine::copied(std::shared_ptr<const Bytes> state, Time now) {
  const std::vector<Lender::Answer> answers = lender_.copied(std::move(state), now);
  if (over_) return;
  for (const Lender::Answer& answer : answers) give(answer, now);
  start_copy();
}

void Engine::start_copy() {
  if (CopyJob job = lender_.take_job()) listener_.copy(std::move(job));
}

void Engine::give(const Lender::Answer& answer, Time now) {
  const swarm::Fetch& fetch = answer.fetch;
  const swarm::Header header = member_.header(fetch.header.round);
  if (answer.blob == nullptr) {
    // What is committed here without a result may come yet.
    const bool never = fetch.kind == swarm::PartKind::kResult &&
                       fetcher_.has_passed(fetch.fragment, fetch.header.round);
    static_cast<void>(transport_.send(
        links_.find(answer.to)->connection,
        swarm::encode(swarm::NotHeld{
            .header = header, .kind = fetch.kind, .fragment = fetch.fragment, .never = never})));
    return;
  }
  links_.lend(answer.to,
              {.part = {.header = header,
                        .kind = fetch.kind,
                        .sender = member_.number(),
                        .receiver = answer.to,
                        .segment = fetch.fragment,
                        .total = answer.blob->size()},
               .blob = answer.blob,
               .sent = fetch.begin,
               .end = fetch.end},
              now);
}

}  // namespace atl::collective
