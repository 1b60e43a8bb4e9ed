// Rounds: begun, exchanged attempt by attempt, prepared and committed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/engine.h"
#include "atoll/swarm/rules.h"

namespace atl::collective {
namespace {

constexpr size_t kSlackPerMember = size_t{1} << 20;  // For parts that are kept.
/// Counted for each of them beside its data: the struct, and what two allocations take.
constexpr size_t kPartOverhead = 256;
static_assert(sizeof(swarm::Part) + 64 <= kPartOverhead);

}  // namespace

void Engine::begin(Contribution contribution, Time now) {
  if (over_) return;
  const int64_t number = contribution.round;
  Round& round = rounds_[number];
  round.contribution = std::make_shared<const Contribution>(std::move(contribution));
  round.begun = now;
  const int32_t fragment = round.contribution->fragment;
  const bool is_committed = fetcher_.is_committed(fragment, number);
  const auto first = member_.first_round();
  if (!is_committed && first && number >= *first) announce(number, round, now);
  // A commit that was handed on already is waited for by nobody here.
  if (fetcher_.has_passed(fragment, number)) rounds_.erase(number);
}

void Engine::announce(int64_t number, Round& round, Time now) {
  const Contribution& contribution = *round.contribution;
  round.was_announced = true;
  act(member_.begin(number, {.fragment = contribution.fragment,
                             .step = contribution.step,
                             .weight = contribution.weight,
                             .count = static_cast<int64_t>(contribution.num_values()),
                             .segment_values = static_cast<int64_t>(
                                 segment_size(contribution.num_values(), contribution.topology)),
                             .num_trained = contribution.num_trained,
                             .rate = contribution.mean_residual.empty() ? link_rate() : 0,
                             .exchange = exchange_name(contribution)}),
      now);
}

/// Owners that keep residuals keep their shares: what they are behind with stays with them. So
/// their rates are not told.
int64_t Engine::link_rate() const {
  constexpr double kMost = 1e12;
  const double rate = links_.mean_rate();
  return rate > 0 ? static_cast<int64_t>(std::clamp(rate, 1.0, kMost)) : 0;
}

Exchange::Plan Engine::plan_of(const swarm::OpenAttempt& attempt) const {
  Exchange::Plan plan{.header = attempt.header,
                      .rank = *swarm::rank_in(attempt, member_.number()),
                      .numbers = attempt.members,
                      .weights = attempt.weights,
                      .shares = attempt.shares,
                      .segment_values = static_cast<size_t>(attempt.segment_values)};
  for (const int32_t number : attempt.members) plan.members.push_back(name(number));
  return plan;
}

void Engine::open(const swarm::OpenAttempt& attempt, Time now) {
  const int64_t number = attempt.header.round;
  Round& round = rounds_.at(number);
  if (preparing_ && preparing_->round == number) {
    round.next = attempt;
    return;
  }
  Exchange::Plan plan = plan_of(attempt);
  round.prepared = false;
  round.own_share = coefficients(attempt.weights)[static_cast<size_t>(plan.rank)];
  round.abstainers.clear();
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    if (attempt.weights[rank] == 0) round.abstainers.push_back(plan.members[rank]);
  }
  round.progressed = now;
  round.has_lost_link = false;
  if (round.exchange == nullptr) {
    round.exchange = std::make_shared<Exchange>(std::move(plan), *round.contribution, memory_);
  } else {
    links_.drop_transfers(number, [&](const Transfer& transfer) {
      // A mean that has begun goes on: the other member drops it.
      const swarm::Part& part = transfer.part;
      return part.sender == member_.number() && part.kind == swarm::PartKind::kMean &&
             transfer.sent == 0;
    });
    round.exchange->reopen(std::move(plan));
  }
  take_early(round, now);
  if (over_) return;
  check_links(now);
}

void Engine::take_early(Round& round, Time now) {
  round.early_bytes = 0;
  for (swarm::Part& early : std::exchange(round.early, {})) {
    if (over_) return;
    const Bytes data = std::exchange(early.data, {});
    const int32_t from = early.sender;
    receive(from, std::move(early), data, 0, now);
  }
}

void Engine::commit(const swarm::Commit& message, Time now) {
  const auto found = rounds_.find(message.header.round);
  const Round round = std::move(found->second);
  rounds_.erase(found);
  fetcher_.committed(message.held);
  const auto record = record_of(message, round.exchange->take_result());
  lender_.keep(record);
  const bool left_out = round.contribution->weight > 0 && round.exchange->plan().own_weight() == 0;
  listener_.committed({.round = message.header.round,
                       .fragment = message.held.fragment,
                       .step = message.held.step,
                       .digest = message.held.digest,
                       .left_out = left_out,
                       .record = record,
                       .members = round.exchange->plan().members,
                       .abstainers = round.abstainers,
                       .own_share = round.own_share,
                       .stop = message.stop,
                       .bytes_sent = round.bytes_sent,
                       .bytes_received = round.bytes_received,
                       .seconds = seconds(now - round.begun)},
                      /*begun=*/true);
}

void Engine::receive(int32_t from, swarm::Part part, std::span<const std::byte> data,
                     size_t frame_bytes, Time now) {
  if (part.sender != from || part.receiver != member_.number() ||
      part.header.run != member_.run()) {
    return accuse(
        from,
        fmt::format("island '{}' sent a part of run '{}' in the name of member {} to "
                    "member {}",
                    name(from), swarm::printable(part.header.run), part.sender, part.receiver),
        now);
  }
  const auto found = rounds_.find(part.header.round);
  member_.count_moved(frame_bytes);
  // It is over, or goes on without this member.
  if (found == rounds_.end() || !found->second.was_announced || found->second.decided) return;
  Round& round = found->second;
  round.bytes_received += static_cast<int64_t>(frame_bytes);
  if (data.empty()) {
    return accuse(from,
                  fmt::format("island '{}' sent a part of round {} without data", name(from),
                              part.header.round),
                  now);
  }
  const auto attempt_of = [](const swarm::Header& header) {
    return std::pair(header.term, header.attempt);
  };
  const swarm::Header known =
      round.exchange != nullptr ? round.exchange->plan().header : swarm::Header{};
  if (attempt_of(part.header) > attempt_of(known)) {
    round.early_bytes += data.size() + kPartOverhead;
    if (round.early_bytes > (links_.all().size() + 1) * most_bytes(round)) {
      return accuse(
          from,
          fmt::format("island '{}' sent more than round {} has", name(from), part.header.round),
          now);
    }
    part.data.assign(data.begin(), data.end());
    round.early.push_back(std::move(part));
    return;
  }
  round.progressed = now;
  if (auto result = round.exchange->receive(part, data); !result) {
    accuse(from, result.error().message, now);
  }
}

size_t Engine::most_bytes(const Round& round) {
  // A contribution and a mean, in parts as large as they can be: only the last one of a segment is
  // shorter.
  const size_t count = round.contribution->num_values();
  const size_t encoded = round.contribution->codec->max_encoded_bytes(count);
  const size_t num_parts =
      encoded / kChunkBytes + count / segment_size(count, round.contribution->topology) + 1;
  return 2 * (encoded + num_parts * 2 * kPartOverhead) + kSlackPerMember;
}

bool Engine::work(Time now) {
  if (over_ || preparing_) return false;
  for (auto& [number, round] : rounds_) {
    if (round.exchange == nullptr || round.prepared) continue;
    if (round.exchange->complete()) {
      prepare(round);
      return true;
    }
    const auto worked = round.exchange->work(links_.has_room());
    if (!worked) {
      blame(*round.exchange, worked.error().message, now);
      return true;
    }
    if (!*worked) continue;
    round.progressed = now;
    member_.count_moved(1);
    post(round, now);
    return true;
  }
  return false;
}

void Engine::blame(const Exchange& exchange, const std::string& reason, Time now) {
  const int32_t culprit = exchange.culprit();
  if (!exchange.is_culprit_a_contributor()) return accuse(culprit, reason, now);
  const swarm::Header& header = exchange.plan().header;
  act(member_.unusable(header.round, header.attempt, culprit, reason), now);
}

void Engine::post(Round& round, Time now) {
  for (Outgoing& outgoing : round.exchange->take_outgoing()) {
    const Link* const link = links_.find(outgoing.to);
    if (link == nullptr) continue;  // A member no more: another attempt is coming.
    if (link->is_lost()) {          // check_links() sees to it.
      round.exchange->forget(outgoing.to);
      continue;
    }
    const size_t size = outgoing.blob->size();
    links_.post(outgoing.to,
                {.part = std::move(outgoing.part), .blob = std::move(outgoing.blob), .end = size},
                now);
  }
}

void Engine::count_sent(int64_t round, size_t frame_bytes, Time now) {
  member_.count_moved(frame_bytes);
  const auto found = rounds_.find(round);
  if (found == rounds_.end()) return;
  // What goes out is progress too: over a slow line a member hears nothing while it sends.
  found->second.progressed = now;
  found->second.bytes_sent += static_cast<int64_t>(frame_bytes);
}

void Engine::prepare(Round& round) {
  preparing_ = round.exchange->plan().header;
  round.prepared = true;
  listener_.prepare(
      [contribution = round.contribution, exchange = round.exchange]() -> Result<Digest> {
        try {
          return contribution->prepare(exchange->mean(), exchange->own());
        } catch (const std::exception& error) {
          return failure(error.what());
        }
      });
}

void Engine::prepared(const Result<Digest>& digest, Time now) {
  ATOLL_CHECK(preparing_.has_value(), "a job is out");
  const swarm::Header header = *std::exchange(preparing_, std::nullopt);
  if (over_) return;
  const auto found = rounds_.find(header.round);
  if (found == rounds_.end()) return;
  hand_on_missed(now);  // A commit without this member may have waited for the job.
  if (!rounds_.contains(header.round)) return;
  if (found->second.decided) return;
  if (const auto next = std::exchange(found->second.next, std::nullopt)) return open(*next, now);
  if (!digest) {
    return trouble(
        fmt::format("the outer step of round {} failed: {}", header.round, digest.error().message),
        now);
  }
  act(member_.prepared(header.round, header.attempt, *digest, found->second.exchange->measures()),
      now);
}

}  // namespace atl::collective
