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

constexpr Duration kFirstPause = std::chrono::milliseconds(100);  // Between tries to join.
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr Duration kVisitorPatience = std::chrono::seconds(10);
/// A member that dies is lost to the coordinator too, which can say so better: it gets this long.
constexpr Duration kVerdictGrace = std::chrono::milliseconds(250);
constexpr size_t kMaxVisitors = 1024;
constexpr size_t kSlackPerMember = size_t{1} << 20;  // For parts that came early.
/// Counted for each of them beside its frame: the struct, and what two allocations take.
constexpr size_t kPartOverhead = 256;
static_assert(sizeof(swarm::Part) + 64 <= kPartOverhead);
/// Encoded and waiting for one member, beyond which no more is encoded: enough that the line never
/// runs dry, and little memory.
constexpr size_t kMaxWaitingBytes = size_t{4} << 20;

swarm::MemberOptions member_options(const SessionOptions& options) {
  swarm::MemberOptions out{.name = options.name,
                           .settings = options.settings,
                           .silence_timeout = options.silence_timeout};
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
      member_(member_options(options_)) {}

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
      actions = member_.garbled(error.what());
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
  if (now >= links_due_) {
    links_due_ = Time::max();
    check_links(now);
  }
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
  act(member_.ready(std::move(report.facts), std::move(report.checkpoints)), Time{});
}

void Engine::begin(Contribution contribution, Time now) {
  if (over_) return;
  const int64_t number = contribution.round;
  const swarm::Begin begin{.fragment = contribution.fragment,
                           .step = contribution.step,
                           .weight = contribution.weight,
                           .count = static_cast<int64_t>(contribution.num_values()),
                           .segment_values = static_cast<int64_t>(
                               segment_size(contribution.num_values(), contribution.topology)),
                           .exchange = exchange_name(contribution)};
  Round& round = rounds_[number];
  round.contribution = std::make_shared<const Contribution>(std::move(contribution));
  round.begun = now;
  act(member_.begin(number, begin), now);
}

void Engine::report(const ProgressReport& progress) {
  member_.report(progress.step, progress.loss, progress.tokens_per_s);
}

void Engine::request_stop() { act(member_.request_stop(), Time{}); }

void Engine::leave() {
  ATOLL_CHECK(over_ || rounds_.empty());
  act(member_.leave(), Time{});
}

void Engine::trouble(const std::string& reason, Time now) {
  if (!over_ && !member_.run().empty()) act(member_.trouble(reason, now), now);
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
      start(started->start, started->number, now);
    } else if (auto* exchange = std::get_if<Member::Exchange>(&action)) {
      open(exchange->attempt, now);
    } else if (auto* committed = std::get_if<Member::Committed>(&action)) {
      commit(committed->commit, now);
    } else if (std::holds_alternative<Member::Left>(action)) {
      over_ = true;
      listener_.left();
    } else if (auto* failed = std::get_if<Member::Failed>(&action)) {
      give_up(failed->reason);
    }
  }
}

void Engine::give_up(const std::string& reason) {
  if (over_) return;
  over_ = true;
  rounds_.clear();
  for (const auto& [_, link] : links_) {
    if (link.connection != 0 && link.lost.empty()) transport_.close(link.connection);
  }
  links_.clear();
  for (const auto& [connection, _] : visitors_) transport_.close(connection);
  visitors_.clear();
  if (control_ != 0) transport_.close(control_);
  listener_.failed(reason);
}

void Engine::lose_control(const std::string& reason, Time now) {
  control_ = 0;
  if (!member_.run().empty()) return act(member_.coordinator_lost(reason), now);
  if (now >= give_up_at_) {
    return give_up(
        fmt::format("no coordinator answered at '{}' within {:.0f} s: {}; start it with "
                    "'atoll coordinate', or check the address",
                    options_.coordinator, seconds(options_.connect_patience), reason));
  }
  member_ = swarm::Member(member_options(options_));
  next_dial_ = std::min(now + pause_, give_up_at_);
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Engine::start(const swarm::Start& start, int32_t number, Time now) {
  StartInfo info{.rank = number,
                 .num_members = static_cast<int>(start.members.size()),
                 .start_step = start.start_step};
  for (const swarm::Peer& peer : start.members) names_.push_back(peer.name);
  head_bytes_ = part_head_bytes(member_.header());
  info.members = names_;
  for (int32_t other = 0; other < info.num_members; ++other) {
    if (other == number) continue;
    Link& link = links_[other];
    if (other > number) continue;  // It connects to us.
    link.connection =
        transport_.connect(start.members[static_cast<size_t>(other)].address, net::Plane::kBulk);
    const auto sent = transport_.send(
        link.connection, swarm::encode(swarm::PeerHello{
                             .header = member_.header(), .view = start.view, .number = number}));
    if (sent != net::Sent::kAccepted) link.lost = "the connection was closed at once";
  }
  std::vector<std::pair<net::ConnectionId, swarm::PeerHello>> early;
  for (const auto& [connection, visitor] : visitors_) {
    if (visitor.hello) early.emplace_back(connection, *visitor.hello);
  }
  for (const auto& [connection, hello] : early) greet(connection, hello, now);
  listener_.started(info);
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
  if (round.exchange == nullptr) {
    round.exchange = std::make_shared<Exchange>(std::move(plan), *round.contribution);
  } else {
    for (auto& [other, link] : links_) drop_means(link, number);
    round.exchange->reopen(std::move(plan));
  }
  round.early_bytes = 0;
  for (swarm::Part& part : std::exchange(round.early, {})) {
    if (over_) break;
    const Bytes data = std::exchange(part.data, {});
    receive(part.sender, std::move(part), data, 0, now);
  }
  if (over_) return;
  check_links(now);
}

void Engine::drop_means(Link& link, int64_t round) {
  std::erase_if(link.transfers, [&](const Transfer& transfer) {
    // One that has begun goes on: the other member drops it.
    const bool is_void = transfer.part.header.round == round && transfer.sent == 0 &&
                         transfer.part.kind == swarm::PartKind::kMean;
    if (is_void) link.waiting_bytes -= transfer.blob->size();
    return is_void;
  });
}

void Engine::commit(const swarm::Commit& message, Time now) {
  const auto found = rounds_.find(message.header.round);
  const Round round = std::move(found->second);
  rounds_.erase(found);
  last_committed_ = std::max(last_committed_, message.header.round);
  listener_.committed({.round = message.header.round,
                       .digest = message.digest,
                       .members = round.exchange->plan().members,
                       .abstainers = round.abstainers,
                       .own_share = round.own_share,
                       .stop = message.stop,
                       .bytes_sent = round.bytes_sent,
                       .bytes_received = round.bytes_received,
                       .seconds = seconds(now - round.begun)});
}

void Engine::handle_bulk(net::ConnectionId connection, const Bytes& frame, Time now) {
  const auto number = number_of(connection);
  const auto visitor = visitors_.find(connection);
  if (!number && visitor == visitors_.end()) return;  // Closed by us; this was on its way.
  if (number && head_bytes_ > 0) {
    if (auto view = view_part(frame, head_bytes_)) {
      return receive(*number, std::move(view->part), view->data, frame.size(), now);
    }
  }
  try {
    swarm::Message message = swarm::decode(frame);
    auto* const part = std::get_if<swarm::Part>(&message);
    const auto* const hello = std::get_if<swarm::PeerHello>(&message);
    if (number && part != nullptr) {
      const Bytes data = std::exchange(part->data, {});
      receive(*number, std::move(*part), data, frame.size(), now);
    } else if (number) {
      trouble(fmt::format("island '{}' sent a {} between parts", name(*number),
                          swarm::kind_name(message)),
              now);
    } else if (hello != nullptr && !visitor->second.hello) {
      visitor->second.hello = *hello;
      if (!names_.empty()) greet(connection, *hello, now);
    } else {
      transport_.close(connection);  // A stranger.
    }
  } catch (const InputError& error) {
    if (number) {
      trouble(fmt::format("island '{}' sent what is no message: {}", name(*number), error.what()),
              now);
    } else {
      transport_.close(connection);
    }
  }
}

void Engine::greet(net::ConnectionId connection, const swarm::PeerHello& hello, Time now) {
  const auto link = links_.find(hello.number);
  const bool ours = hello.header == member_.header() && hello.view == member_.start().view;
  if (!ours || link == links_.end() || hello.number < member_.number() ||
      link->second.connection != 0) {
    transport_.close(connection);
    return;
  }
  visitors_.erase(connection);
  link->second.connection = connection;
  link->second.opened = true;
  pump(hello.number, now);
  check_links(now);
}

void Engine::receive(int32_t number, swarm::Part part, std::span<const std::byte> data,
                     size_t frame_bytes, Time now) {
  const auto found = rounds_.find(part.header.round);
  const swarm::Header expected = member_.header(part.header.round, part.header.attempt);
  if (part.sender != number || part.header != expected) {
    return trouble(
        fmt::format("island '{}' sent a part of run '{}', term {}, in the name of member "
                    "{}",
                    name(number), swarm::printable(part.header.run), part.header.term, part.sender),
        now);
  }
  if (found == rounds_.end() && part.header.round <= last_committed_) return;  // It is over.
  if (found == rounds_.end()) {
    return trouble(fmt::format("island '{}' sent a part of round {}, which is not open here",
                               name(number), part.header.round),
                   now);
  }
  Round& round = found->second;
  round.bytes_received += static_cast<int64_t>(frame_bytes);
  member_.count_moved(frame_bytes);
  if (round.exchange == nullptr || part.header.attempt > round.exchange->plan().header.attempt) {
    if (data.empty()) {
      return trouble(fmt::format("island '{}' sent a part of round {} without data", name(number),
                                 part.header.round),
                     now);
    }
    round.early_bytes += frame_bytes + kPartOverhead;
    if (round.early_bytes > max_early_bytes(round)) {
      return trouble(
          fmt::format("island '{}' sent more than round {} has", name(number), part.header.round),
          now);
    }
    part.data.assign(data.begin(), data.end());
    round.early.push_back(std::move(part));
    return;
  }
  round.progressed = now;
  if (auto result = round.exchange->receive(part, data); !result) {
    trouble(result.error().message, now);
  }
}

size_t Engine::max_early_bytes(const Round& round) const {
  // Each other member sends at most its contribution and a mean, in parts as large as they can be:
  // only the last one of a segment is shorter. A frame's own header is less than kPartOverhead.
  const size_t count = round.contribution->num_values();
  const size_t encoded = round.contribution->codec->max_encoded_bytes(count);
  const size_t num_parts =
      encoded / kChunkBytes + count / segment_size(count, round.contribution->topology) + 1;
  return names_.size() * (2 * (encoded + num_parts * 2 * kPartOverhead) + kSlackPerMember);
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
      trouble(worked.error().message, now);
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

bool Engine::may_encode() const {
  return std::ranges::none_of(
      links_, [](const auto& entry) { return entry.second.waiting_bytes > kMaxWaitingBytes; });
}

void Engine::post(Round& round, Time now) {
  for (Outgoing& outgoing : round.exchange->take_outgoing()) {
    Link& link = links_.at(outgoing.to);
    if (!link.lost.empty()) continue;  // check_links() sees to it.
    link.waiting_bytes += outgoing.blob->size();
    link.transfers.push_back({.part = std::move(outgoing.part), .blob = std::move(outgoing.blob)});
    pump(outgoing.to, now);
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
  if (const auto next = std::exchange(rounds_.at(header.round).next, std::nullopt)) {
    return open(*next, now);
  }
  if (!digest) {
    return trouble(
        fmt::format("the outer step of round {} failed: {}", header.round, digest.error().message),
        now);
  }
  act(member_.prepared(header.round, header.attempt, *digest), now);
}

void Engine::lose_bulk(net::ConnectionId connection, const std::string& reason, Time now) {
  visitors_.erase(connection);
  if (const auto number = number_of(connection)) {
    Link& link = links_.at(*number);
    link.lost = reason;
    link.transfers.clear();
    link.waiting_bytes = 0;
    link.verdict_due = now + kVerdictGrace;
    links_due_ = std::min(links_due_, link.verdict_due);
  }
}

void Engine::check_stalls(Time now) {
  for (const auto& [number, round] : rounds_) {
    // While others move something, what this member waits for may come yet.
    const Time progressed = std::max(round.progressed, member_.last_moved());
    if (round.exchange == nullptr || now - progressed <= options_.silence_timeout) continue;
    return trouble(fmt::format("in round {} nothing came for {:.0f} s from island {}", number,
                               seconds(options_.silence_timeout), round.exchange->debtors()),
                   now);
  }
}

void Engine::check_links(Time now) {
  for (const auto& [number, round] : rounds_) {
    if (round.exchange == nullptr || round.prepared) continue;
    for (const int32_t member : round.exchange->plan().numbers) {
      const auto link = links_.find(member);
      if (link == links_.end() || link->second.lost.empty()) continue;
      if (now < link->second.verdict_due) {
        links_due_ = std::min(links_due_, link->second.verdict_due);
        continue;
      }
      const auto& [why, opened] = std::pair(link->second.lost, link->second.opened);
      return trouble(
          opened ? fmt::format("the connection to island '{}' was lost: {}", name(member), why)
                 : fmt::format("island '{}' cannot be reached: {}", name(member), why),
          now);
    }
  }
}

void Engine::pump(int32_t number, Time now) {
  Link& link = links_.at(number);
  if (link.connection == 0 || !link.lost.empty()) return;
  const size_t chunk_bytes = chunk_size(transport_.estimate(link.connection).bytes_per_second);
  while (!link.full && !link.transfers.empty()) {
    Transfer& transfer = link.transfers.front();
    const size_t size = std::min(chunk_bytes, transfer.blob->size() - transfer.sent);
    transfer.part.offset = transfer.sent;
    net::SharedFrame frame = part_frame(transfer.part, transfer.blob, size);
    const size_t frame_bytes = frame.size();
    const auto sent = transport_.send_shared(link.connection, std::move(frame));
    if (sent == net::Sent::kFull) link.full = true;
    if (sent != net::Sent::kAccepted) return;  // Writable or Lost follows.
    member_.count_moved(frame_bytes);
    if (const auto round = rounds_.find(transfer.part.header.round); round != rounds_.end()) {
      // What goes out is progress too: over a slow line a member hears nothing while it sends.
      round->second.progressed = now;
      round->second.bytes_sent += static_cast<int64_t>(frame_bytes);
    }
    transfer.sent += size;
    link.waiting_bytes -= size;
    if (transfer.sent == transfer.blob->size()) link.transfers.pop_front();
  }
}

const std::string& Engine::name(int32_t number) const {
  return names_[static_cast<size_t>(number)];
}

std::optional<int32_t> Engine::number_of(net::ConnectionId connection) const {
  for (const auto& [number, link] : links_) {
    if (link.connection == connection) return number;
  }
  return std::nullopt;
}

}  // namespace atl::collective
