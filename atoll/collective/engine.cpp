#include "atoll/collective/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/part_frame.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

static_assert(kNoFragment == swarm::kNoFragment);

constexpr Duration kFirstPause = std::chrono::milliseconds(100);  // Between tries to join.
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr Duration kVisitorPatience = std::chrono::seconds(10);
constexpr size_t kMaxVisitors = 1024;
constexpr Duration kSnapshotPatience = std::chrono::seconds(60);  // From the last piece on.
/// Encoded and waiting for one member, beyond which no more is encoded: enough that the line never
/// runs dry, and little memory.
constexpr size_t kMaxWaitingBytes = size_t{4} << 20;
/// Of memory that one round leaves to the next, at most.
constexpr size_t kMaxSpareBytes = size_t{1} << 30;

swarm::MemberOptions member_options(const SessionOptions& options) {
  swarm::MemberOptions out{.name = options.name,
                           .run_name = options.run_name,
                           .settings = options.settings,
                           .silence_timeout = options.silence_timeout,
                           .return_patience = options.return_patience};
  if (!options.version.empty()) out.version = options.version;
  return out;
}

}  // namespace

Engine::Engine(SessionOptions options, std::string address, net::Transport& transport,
               EngineListener& listener)
    : options_(std::move(options)),
      address_(std::move(address)),
      transport_(transport),
      listener_(listener),
      member_(member_options(options_)),
      memory_(std::make_shared<RoundMemory>(PagePool(kMaxSpareBytes))) {}

Engine::~Engine() = default;

void Engine::connect(Time now) {
  give_up_at_ = now + options_.connect_patience;
  pause_ = kFirstPause;
  dial(now);
}

void Engine::dial(Time /*now*/) {
  next_dial_ = Time::max();
  control_ = transport_.connect(options_.coordinator, net::Plane::kControl);
}

void Engine::handle(net::Event event, Time now) {
  if (over_) return;
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    if (opened->connection == control_) {
      act(member_.connected(address_, now), now);
    } else if (const auto number = number_of(opened->connection)) {
      links_.at(*number).opened = true;
      links_.at(*number).opened_at = now;
      ask_around(now);
    } else if (opened->inbound) {
      if (opened->plane == net::Plane::kBulk && visitors_.size() < kMaxVisitors) {
        visitors_[opened->connection] = {.since = now};
      } else {
        transport_.close(opened->connection);
      }
    }
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    if (received->connection != control_) {
      return handle_bulk(received->connection, received->frame, now);
    }
    swarm::Member::Actions actions;
    try {
      actions = member_.received(swarm::decode(received->frame), now);
    } catch (const InputError& error) {
      actions = member_.garbled(error.what(), now);
    }
    act(std::move(actions), now);
  } else if (const auto* writable = std::get_if<net::Writable>(&event)) {
    if (const auto number = number_of(writable->connection)) {
      links_.at(*number).full = false;
      pump(*number, now);
    }
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    if (lost->connection == control_) {
      lose_control(lost->reason, now);
    } else {
      lose_bulk(lost->connection, lost->reason, now);
    }
  }
}

void Engine::tick(Time now) {
  if (over_) return;
  if (preparing_) member_.count_moved(1);  // The others may be waiting for what comes after it.
  act(member_.tick(now), now);
  if (over_) return;
  if (now >= next_dial_) dial(now);
  check_stalls(now);
  check_links(now);
  ask_again(now);
  if (over_) return;
  lend(now);
  const bool lends =
      std::ranges::any_of(links_, [](const auto& entry) { return !entry.second.lent.empty(); });
  if (lends) keep_snapshots(now);
  std::erase_if(snapshots_,
                [&](const auto& entry) { return now - entry.second.used > kSnapshotPatience; });
  for (const auto& [connection, visitor] : visitors_) {
    const bool mute = !visitor.hello && now - visitor.since > kVisitorPatience;
    if (mute) transport_.close(connection);
  }
}

Time Engine::next_deadline() const {
  return over_ ? Time::max() : std::min({member_.next_deadline(), next_dial_, links_due_});
}

void Engine::ready(ReadyReport report) {
  if (over_) return;
  options_.silence_timeout = report.silence_timeout;
  member_.set_silence_timeout(report.silence_timeout);
  act(member_.ready(std::move(report.facts), std::move(report.checkpoints),
                    std::move(report.former)),
      Time{});
}

void Engine::begin(Contribution contribution, Time now) {
  if (over_) return;
  const int64_t number = contribution.round;
  Round& round = rounds_[number];
  round.contribution = std::make_shared<const Contribution>(std::move(contribution));
  round.begun = now;
  const auto held = held_.find(round.contribution->fragment);
  const bool is_committed = held != held_.end() && held->second.round >= number;
  const auto first = member_.first_round();
  if (!is_committed && first && number >= *first) announce(number, round, now);
  // A commit that was handed on already is waited for by nobody here.
  const bool is_missing = std::ranges::any_of(
      missing_, [&](const auto& entry) { return entry.second.commit.held.round == number; });
  if (is_committed && !is_missing) rounds_.erase(number);
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
  double sum = 0;
  int64_t num_known = 0;
  for (const auto& [number, link] : links_) {
    if (link.connection == 0 || !link.lost.empty()) continue;
    const double rate = transport_.estimate(link.connection).bytes_per_second;
    sum += rate;
    num_known += rate > 0 ? 1 : 0;
  }
  constexpr double kMost = 1e12;
  if (num_known == 0) return 0;
  return static_cast<int64_t>(std::clamp(sum / static_cast<double>(num_known), 1.0, kMost));
}

void Engine::report(const ProgressReport& progress) {
  member_.report(progress.step, progress.loss, progress.tokens_per_s, progress.num_trained);
}

void Engine::request_stop() { act(member_.request_stop(), Time{}); }

void Engine::leave() {
  rounds_.clear();
  act(member_.leave(), Time{});
}

void Engine::trouble(const std::string& reason, Time now) {
  if (!over_ && !member_.run().empty()) act(member_.trouble(reason), now);
}

void Engine::act(swarm::Member::Actions actions, Time now) {
  using swarm::Member;
  for (auto& action : actions) {
    if (auto* send = std::get_if<Member::Send>(&action)) {
      // A coordinator that reads nothing for so long that the queue is full is as good as gone.
      if (transport_.send(control_, swarm::encode(send->message)) == net::Sent::kFull) {
        transport_.close(control_);
      }
    } else if (auto* welcomed = std::get_if<Member::Welcomed>(&action)) {
      listener_.welcomed(welcomed->run, welcomed->config);
    } else if (auto* started = std::get_if<Member::Started>(&action)) {
      start(started->start, now);
    } else if (auto* viewed = std::get_if<Member::Viewed>(&action)) {
      view(viewed->members, now);
    } else if (auto* exchange = std::get_if<Member::Exchange>(&action)) {
      open(exchange->attempt, now);
    } else if (auto* committed = std::get_if<Member::Committed>(&action)) {
      commit(committed->commit, now);
    } else if (auto* missed = std::get_if<Member::Missed>(&action)) {
      miss(missed->commit, now);
    } else if (auto* leased = std::get_if<Member::Leased>(&action)) {
      listener_.leased(leased->units);
    } else if (auto* takes_part = std::get_if<Member::TakesPart>(&action)) {
      take_part(takes_part->reinstated, now);
    } else if (auto* called = std::get_if<Member::Called>(&action)) {
      const swarm::Due& due = called->due;
      listener_.called({.round = due.header.round,
                        .fragment = due.fragment,
                        .base = due.base,
                        .step = due.step});
    } else if (auto* waits = std::get_if<Member::Waits>(&action)) {
      options_.on_notice(waits->why.empty() ? "the wait is over: rounds go on" : waits->why);
    } else if (std::holds_alternative<Member::Reconnect>(action)) {
      reconnect(now);
    } else if (std::holds_alternative<Member::Left>(action)) {
      over_ = true;
      listener_.left();
    } else if (auto* failed = std::get_if<Member::Failed>(&action)) {
      give_up(failed->reason, failed->ending);
    }
  }
}

void Engine::give_up(const std::string& reason, swarm::Ending ending) {
  if (over_) return;
  over_ = true;
  rounds_.clear();
  for (const auto& [_, link] : links_) {
    if (link.connection != 0) transport_.close(link.connection);
  }
  links_.clear();
  for (const auto& [connection, _] : visitors_) transport_.close(connection);
  visitors_.clear();
  if (control_ != 0) transport_.close(control_);
  listener_.failed(reason, ending);
}

void Engine::lose_control(const std::string& reason, Time now) {
  control_ = 0;
  if (!member_.run().empty()) {
    if (member_.is_member() && !std::exchange(misses_control_, true)) {
      options_.on_notice(
          fmt::format("the coordinator is not there ({}); training goes on as far as it can, and "
                      "waits {:.0f} s "
                      "for it at most (swarm.return_patience)",
                      reason, seconds(options_.return_patience)));
    }
    return act(member_.coordinator_lost(reason, now), now);
  }
  if (now >= give_up_at_) {
    return give_up(
        fmt::format("no coordinator answered at '{}' within {:.0f} s: {}; start it with "
                    "'atoll coordinate', or check the address",
                    options_.coordinator, seconds(options_.connect_patience), reason));
  }
  member_ = swarm::Member(member_options(options_));
  reconnect(now);
  next_dial_ = std::min(next_dial_, give_up_at_);
}

/// After a pause that grows with each failure, and a first one that is short.
void Engine::reconnect(Time now) {
  if (control_ != 0) transport_.close(std::exchange(control_, 0));
  next_dial_ = now + pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Engine::start(const swarm::Start& start, Time now) {
  StartInfo info{.number = start.number,
                 .num_members = static_cast<int>(start.num_replicas),
                 .start_step = start.start_step,
                 .step = start.step,
                 .term = start.header.term,
                 .joins = start.joins,
                 .returns = start.returns};
  for (const swarm::Peer& peer : start.members) info.members.push_back(peer.name);
  for (const swarm::Held& held : start.held) {
    held_[held.fragment] = held;
    if (start.joins) state_fetches_[held.fragment].held = held;
  }
  head_bytes_ = part_head_bytes(member_.header());
  view(start.members, now);
  listener_.leased(start.units);
  listener_.started(info);
}

void Engine::view(const std::vector<swarm::Peer>& members, Time now) {
  if (std::exchange(misses_control_, false)) options_.on_notice("the coordinator is back");
  pause_ = kFirstPause;
  std::vector<int32_t> gone;
  for (const auto& [number, link] : links_) {
    if (std::ranges::find(members, number, &swarm::Peer::number) == members.end()) {
      gone.push_back(number);
    }
  }
  for (const int32_t number : gone) {
    if (links_.at(number).connection != 0) transport_.close(links_.at(number).connection);
    links_.erase(number);
    forget_requests_of(number);
    for (Retrieval& retrieval : retrievals_) retrieval.lost(number);
  }
  for (const swarm::Peer& peer : members) {
    names_[peer.number] = peer.name;
    if (peer.number == member_.number()) continue;
    const auto [link, is_new] = links_.try_emplace(peer.number);
    if (link->second.was_reported) {  // To a coordinator that may not know it.
      link->second.was_reported = false;
      link->second.verdict_due = now;
      links_due_ = now;
    }
    link->second.address = peer.address;
    if (is_new) link->second.pause = kFirstPause;
    if (is_new && peer.number < member_.number()) dial_peer(peer.number, now);
  }
  std::vector<std::pair<net::ConnectionId, swarm::PeerHello>> early;
  for (const auto& [connection, visitor] : visitors_) {
    if (visitor.hello) early.emplace_back(connection, *visitor.hello);
  }
  for (const auto& [connection, hello] : early) greet(connection, hello, now);
  ask_around(now);
}

void Engine::take_part(const swarm::Reinstated& reinstated, Time now) {
  listener_.reinstated(reinstated.step);
  std::vector<int64_t> due;
  for (const auto& [number, round] : rounds_) {
    if (!round.was_announced && number >= reinstated.first_round) due.push_back(number);
  }
  for (const int64_t number : due) {
    Round& round = rounds_.at(number);
    const auto held = held_.find(round.contribution->fragment);
    if (held == held_.end() || held->second.round < number) announce(number, round, now);
  }
}

Exchange::Plan Engine::plan_of(const swarm::OpenAttempt& attempt) const {
  Exchange::Plan plan{.header = attempt.header,
                      .rank = *swarm::rank_in(attempt, member_.number()),
                      .numbers = attempt.members,
                      .weights = attempt.weights,
                      .shares = attempt.shares,
                      .segment_values = static_cast<size_t>(attempt.segment_values)};
  for (const int32_t number : attempt.members) plan.members.push_back(name(number));
  for (const swarm::Relay& relay : attempt.relays) {
    if (relay.a == member_.number()) plan.via[relay.b] = relay.via;
    if (relay.b == member_.number()) plan.via[relay.a] = relay.via;
  }
  return plan;
}

void Engine::open(const swarm::OpenAttempt& attempt, Time now) {
  const int64_t number = attempt.header.round;
  Round& round = rounds_.at(number);
  hear(round, attempt);
  if (preparing_ && preparing_->round == number) {
    round.next = attempt;
    return take_early(round, now);  // The others need not wait for the job too.
  }
  Exchange::Plan plan = plan_of(attempt);
  round.prepared = false;
  round.own_share = coefficients(attempt.weights)[static_cast<size_t>(plan.rank)];
  round.abstainers.clear();
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    if (attempt.weights[rank] == 0) round.abstainers.push_back(plan.members[rank]);
  }
  round.progressed = now;
  if (round.exchange == nullptr) {
    round.exchange = std::make_shared<Exchange>(std::move(plan), *round.contribution, memory_);
  } else {
    drop_transfers(number, [&](const Transfer& transfer) {
      // A mean that has begun goes on: the other member drops it.
      const swarm::Part& part = transfer.part;
      return part.sender == member_.number() &&
             ((part.kind == swarm::PartKind::kMean && transfer.sent == 0) ||
              plan.via.contains(part.receiver) ||
              round.exchange->plan().via.contains(part.receiver));
    });
    round.exchange->reopen(std::move(plan));
  }
  take_early(round, now);
  if (over_) return;
  check_links(now);
}

/// What this member relays, it relays of this attempt from here on.
void Engine::hear(Round& round, const swarm::OpenAttempt& attempt) {
  if (round.newest.header == attempt.header) return;
  round.newest = attempt;
  round.relayed_bytes.clear();
  drop_transfers(attempt.header.round, [&](const Transfer& transfer) {
    return transfer.part.sender != member_.number() && transfer.part.header != attempt.header;
  });
}

void Engine::take_early(Round& round, Time now) {
  round.early_bytes = 0;
  for (EarlyPart& early : std::exchange(round.early, {})) {
    if (over_) return;
    const Bytes data = std::exchange(early.part.data, {});
    receive(early.over, std::move(early.part), data, 0, now);
  }
}

void Engine::commit(const swarm::Commit& message, Time now) {
  const auto found = rounds_.find(message.header.round);
  const Round round = std::move(found->second);
  rounds_.erase(found);
  held_[message.held.fragment] = message.held;
  const auto record = record_of(message, round.exchange->take_result());
  keep_result(record);
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

bool Engine::work(Time now) {
  if (over_ || preparing_) return false;
  for (auto& [number, round] : rounds_) {
    if (round.exchange == nullptr || round.prepared) continue;
    if (round.exchange->complete()) {
      prepare(round);
      return true;
    }
    const auto worked = round.exchange->work(may_encode());
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

bool Engine::may_encode() const {
  return std::ranges::none_of(
      links_, [](const auto& entry) { return entry.second.waiting_bytes > kMaxWaitingBytes; });
}

void Engine::post(Round& round, Time now) {
  for (Outgoing& outgoing : round.exchange->take_outgoing()) {
    const int32_t over = neighbour(*round.exchange, outgoing.to);
    const auto found = links_.find(over);
    if (found == links_.end()) continue;  // A member no more: another attempt is coming.
    Link& link = found->second;
    if (!link.lost.empty()) {  // check_links() sees to it.
      round.exchange->forget(outgoing.to);
      continue;
    }
    link.waiting_bytes += outgoing.blob->size();
    const size_t size = outgoing.blob->size();
    link.transfers.push_back(
        {.part = std::move(outgoing.part), .blob = std::move(outgoing.blob), .end = size});
    pump(over, now);
  }
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
  act(member_.prepared(header.round, header.attempt, *digest,
                       found->second.exchange->sums_of_squares()),
      now);
}

const std::string& Engine::name(int32_t number) const { return names_.at(number); }

std::optional<int32_t> Engine::number_of(net::ConnectionId connection) const {
  for (const auto& [number, link] : links_) {
    if (link.connection == connection) return number;
  }
  return std::nullopt;
}

}  // namespace atl::collective
