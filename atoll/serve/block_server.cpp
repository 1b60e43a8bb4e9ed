// The thread of a block server that speaks.
#include "atoll/serve/block_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/name.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/rows.h"
#include "atoll/chain/wire.h"
#include "atoll/model/spinning.h"

namespace atl::serve {
namespace {

constexpr Duration kNap = std::chrono::milliseconds(20);
constexpr Duration kBetweenOffers = std::chrono::milliseconds(500);
constexpr size_t kMaxJobsBytes = size_t{256} << 20;
constexpr size_t kMaxLessonsBytes = size_t{1} << 30;  // While a layer of one is read.

/// A server has to know the others of its model.
chain::DirectoryPostOptions watching(chain::DirectoryPostOptions options,
                                     const std::string& digest) {
  options.watches = digest;
  return options;
}

bool is_of_lessons(const chain::Message& message) {
  return std::holds_alternative<chain::Adapt>(message) ||
         std::holds_alternative<chain::LessonRows>(message) ||
         std::holds_alternative<chain::Lesson>(message);
}

}  // namespace

BlockServer::BlockServer(BlockServerOptions options, net::Transport& transport,
                         swarm::Inbox<net::Event>& inbox, const Clock& clock)
    : options_(std::move(options)),
      inbox_(inbox),
      clock_(clock),
      lines_(transport, options_.post.authority),
      post_(watching(options_.post, options_.lease.digest), transport),
      lease_(options_.lease),
      lender_(options_.lending, lines_, clock_, [this] { return num_sessions_ > 0; }) {
  if (!options_.kept) return;
  desk_.emplace(
      *options_.kept,
      KvDesk::Hooks{
          .send = [this](const auto& to, const auto& message) { send_to(to, message); },
          .restored =
              [this](const chain::Restore& order, chain::Span pages_layers, FoundChunks found) {
                take_restored(order, pages_layers, std::move(found));
              },
          .tell = options_.log},
      clock_);
}

BlockServer::~BlockServer() { leave("", {}, {}); }

void BlockServer::run(const std::function<bool()>& stops) {
  std::optional<chain::Span> place;
  if (lease_.is_fixed) place = lease_.layers;
  offer(clock_.now());
  Time next_offer{};
  bool is_known = false;
  while (!stops()) {
    const Time now = clock_.now();
    if (now >= post_.next_deadline()) post_.tick(now);
    look_at_reader();
    if (const auto other = post_.take_place(); other && *other != lease_.layers) place = other;
    if (place && lease_.state != chain::LeaseState::kLoading) {
      take_place(*std::exchange(place, {}));
    }
    learn_servers();
    if (now >= next_offer) {
      ping_neighbours(now);
      offer(now);
      next_offer = now + kBetweenOffers;
    }
    if (const auto event = inbox_.pop(kNap)) handle(*event);
    if (inbox_.overflowed()) throw InputError("more has come than this server can hold");
    if (post_.has_joined() && !std::exchange(is_known, true)) options_.joined();
  }
  if (!reader_.joinable()) return;
  lease_.state = chain::LeaseState::kDraining;
  offer(clock_.now());
  if (const int64_t texts = num_sessions_; texts > 0) {
    options_.log(fmt::format(
        "it ends once its {} texts are with others or over, in {} minutes at "
        "most; a second signal ends it at once",
        texts, std::chrono::duration_cast<std::chrono::minutes>(options_.drain_patience).count()));
  }
  leave("it is shut down", options_.drain_patience, options_.drain_silence);
}

/// Whether it has loaded its layers meanwhile, or failed.
void BlockServer::look_at_reader() {
  std::optional<Loaded> loaded;
  {
    const MutexLock lock(mutex_);
    if (!failure_.empty()) throw InputError(failure_);
    loaded = std::exchange(loaded_, {});
  }
  if (!loaded) return;
  lease_.layers_per_s = loaded->speed.layers_per_s;
  lease_.token_layers_per_s = loaded->speed.token_layers_per_s;
  lease_.num_positions = loaded->num_positions;
  lease_.state = chain::LeaseState::kServing;
  offer(clock_.now());
  options_.log(
      fmt::format("serving layers {} to {} of {}: {:.0f} layers a second, {:.0f} of many tokens{}",
                  lease_.layers.begin, lease_.layers.end - 1, lease_.num_layers,
                  lease_.layers_per_s, lease_.token_layers_per_s,
                  post_.refused()        ? "; nobody knows it: the coordinator refuses it"
                  : post_.is_connected() ? ""
                                         : "; nobody knows it while the coordinator is away"));
}

/// How long the next servers take to answer, for who chooses routes.
void BlockServer::ping_neighbours(Time now) {
  std::vector<std::pair<std::string, net::ConnectionId>> lines;
  {
    const MutexLock lock(mutex_);
    lines.assign(neighbours_.begin(), neighbours_.end());
  }
  std::erase_if(pings_, [&](const auto& ping) {
    return std::ranges::find(lines, ping.first, [](const auto& line) { return line.second; }) ==
           lines.end();
  });
  for (const auto& [address, line] : lines) {
    if (!pings_.try_emplace(line, address, now).second) continue;  // One is under way.
    lines_.send(line, chain::Ping{});
  }
}

void BlockServer::hear_pong(net::ConnectionId line) {
  const auto ping = pings_.find(line);
  if (ping == pings_.end()) return;
  const auto& [address, sent] = ping->second;
  const auto ms = std::chrono::duration<float, std::milli>(clock_.now() - sent).count();
  auto link = std::ranges::find(lease_.links, address, &chain::Link::address);
  if (link == lease_.links.end()) {
    if (lease_.links.size() >= chain::kMostLinks) lease_.links.erase(lease_.links.begin());
    lease_.links.push_back({.address = address, .round_trip_ms = ms});
  } else {
    // Pings wait behind rows: the least is the line's, as long as that is so.
    link->round_trip_ms = std::min(ms, link->round_trip_ms * 1.1F);
  }
  pings_.erase(ping);
}

void BlockServer::learn_servers() {
  if (servers_version_ == post_.servers_version()) return;
  servers_version_ = post_.servers_version();
  const MutexLock lock(mutex_);
  known_.clear();
  for (const chain::Lease& lease : post_.servers_of(lease_.digest)) known_.insert(lease.address);
}

void BlockServer::offer(Time now) {
  lease_.num_free = num_free_;
  lease_.num_sessions = static_cast<int32_t>(num_sessions_);
  if (desk_) lease_.neighbour_layers_per_s = desk_->neighbour_speed();
  post_.set_lease(lease_, now);
  if (!reader_.joinable()) return;
  // For the next one: pages are counted once for a lease, not in each pass.
  const MutexLock lock(mutex_);
  jobs_.emplace_back([this](BlockEngine& engine) { num_free_ = engine.num_free(); });
  arrived_.notify_all();
}

/// Sessions go elsewhere, as far as they do in time; then nothing is read any more.
void BlockServer::leave(const std::string& why, Duration longest, Duration silence) {
  if (!reader_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    jobs_.emplace_back([why](BlockEngine& engine) { engine.leave(why); });
    lessons_.emplace_back([why](BlockTrainer& trainer) { trainer.leave(why); });
    arrived_.notify_all();
  }
  const Time begin = clock_.now();
  Time read = begin;
  Time next_offer{};
  uint64_t num_passes = num_passes_;
  while (num_sessions_ > 0) {
    const Time now = clock_.now();
    if (const uint64_t passes = num_passes_; passes != num_passes) {
      num_passes = passes;
      read = now;
    }
    if (now - begin >= longest || now - read >= silence || inbox_.overflowed()) break;
    learn_servers();
    if (now >= next_offer) {
      offer(now);
      next_offer = now + kBetweenOffers;
    }
    if (now >= post_.next_deadline()) post_.tick(now);
    if (const auto event = inbox_.pop(kNap)) handle(*event);
  }
  {
    const MutexLock lock(mutex_);
    stops_reading_ = true;
    arrived_.notify_all();
  }
  reader_.join();
  num_sessions_ = 0;
}

void BlockServer::take_place(chain::Span layers) {
  if (reader_.joinable()) {
    lease_.state = chain::LeaseState::kDraining;
    offer(clock_.now());
    leave("it is to serve other layers", options_.leave_patience, options_.leave_patience);
  }
  // Who is connected knows of other layers: all greet anew.
  for (const auto& [line, caller] : callers_) {
    if (caller.has_greeted) lines_.close(line);
  }
  lease_.layers = layers;
  lease_.state = chain::LeaseState::kLoading;
  offer(clock_.now());
  {
    const MutexLock lock(mutex_);
    stops_reading_ = false;
    jobs_.clear();
    lessons_.clear();
  }
  model::release_team();  // Of who has read the model.
  reader_ = std::thread([this, layers] { read(layers); });
}

void BlockServer::handle(const net::Event& event) {
  const auto line = std::visit([](const auto& any) { return any.connection; }, event);
  if (post_.owns(line)) return post_.handle(event, clock_.now());
  lines_.note(event);
  if (std::holds_alternative<net::Writable>(event)) {  // Lessons may have waited for that.
    const MutexLock lock(mutex_);
    arrived_.notify_all();
  }
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    if (!opened->inbound) return;
    callers_[line] = {.plane = opened->plane, .peer = {}};
    if (opened->certificate) callers_[line].peer = opened->certificate->peer;
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    lose(line, lost->reason);
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    const auto caller = callers_.find(line);
    try {
      chain::Message message = chain::decode(received->frame);
      if (caller == callers_.end()) {  // A server that was called says who it is, or why not.
        if (std::holds_alternative<chain::Refused>(message)) lines_.close(line);
        if (std::holds_alternative<chain::Pong>(message)) hear_pong(line);
        if (desk_) hear_keeper(line, message);
      } else {
        hear(line, caller->second, std::move(message));
      }
    } catch (const InputError& error) {
      options_.log(fmt::format("a connection is closed: {}", error.what()));
      lines_.close(line);
    }
  }
}

void BlockServer::greet(net::ConnectionId line, Caller& caller, const chain::Greet& message) {
  std::string refusal;
  if (message.protocol != chain::kProtocol) {
    refusal = fmt::format("protocol {} is spoken here, not {}", chain::kProtocol, message.protocol);
  } else if (message.model != lease_.digest) {
    const std::string type = chain::type_of(lease_.digest);
    refusal = fmt::format("'{}' {} is served here, which is another model", lease_.model,
                          type.empty() ? "as stored" : "in " + type);
  } else if (caller.peer &&
             caller.peer->role !=
                 (message.gateway == 0 ? identity::Role::kServer : identity::Role::kGateway)) {
    refusal = fmt::format("a {} is no {}", identity::name_of(caller.peer->role),
                          message.gateway == 0 ? "server" : "gateway");
  } else if (lease_.state == chain::LeaseState::kWaiting ||
             lease_.state == chain::LeaseState::kLoading) {  // Who drains has old sessions still.
    refusal = "no layers are served here yet";
  }
  if (!refusal.empty()) {
    lines_.send(line, chain::Refused{refusal});
    return lines_.close(line);
  }
  caller.has_greeted = true;
  caller.gateway = message.gateway;
  if (message.gateway != 0) {
    const std::string name = caller.peer ? caller.peer->name : std::string();
    const MutexLock lock(mutex_);
    GatewayLines& gateway = gateways_.try_emplace(message.gateway, name).first->second;
    if (gateway.name != name) throw InputError("it takes itself for another gateway");
    (caller.plane == net::Plane::kPeer ? gateway.control : gateway.bulk) = line;
  }
  lines_.send(line, chain::Greeted{lease_.layers});
}

/// Weights are for servers, who would have them anyway. What kind of model it is others may know.
void BlockServer::lend(net::ConnectionId line, const Caller& caller, chain::Want want) {
  const bool is_server = !caller.peer || caller.peer->role == identity::Role::kServer;
  if (!is_server && want.part != chain::kManifestPart) {
    lines_.send(line, chain::Refused{fmt::format("a {} is no server: weights are for those",
                                                 identity::name_of(caller.peer->role))});
    return lines_.close(line);
  }
  if (!lender_.ask(line, std::move(want))) throw InputError("it asks for too many pieces at once");
}

void BlockServer::hear(net::ConnectionId line, Caller& caller, chain::Message message) {
  if (const auto* greeting = std::get_if<chain::Greet>(&message)) {
    return greet(line, caller, *greeting);
  }
  if (auto* want = std::get_if<chain::Want>(&message)) return lend(line, caller, std::move(*want));
  if (!caller.has_greeted) throw InputError("it says something before it says who it is");
  if (const auto* ping = std::get_if<chain::Ping>(&message)) {
    return lines_.send(line, pong(ping->number));
  }
  if (const auto* refused = std::get_if<chain::Refused>(&message)) {
    options_.log(fmt::format("{} does not use this server any more: {}",
                             caller.peer ? "the gateway '" + caller.peer->name + "'" : "a gateway",
                             printable(refused->reason)));
    return lines_.close(line);
  }
  if (hear_of_kept(line, caller, message)) return;
  // A gateway speaks of its own sessions, and another server sends rows alone.
  const chain::SessionId* session = nullptr;
  size_t bytes = 0;
  if (const auto* work = std::get_if<chain::Work>(&message)) {
    session = &work->session;
    bytes = static_cast<size_t>(chain::num_bytes(work->rows));
  } else if (const auto* reroute = std::get_if<chain::Reroute>(&message)) {
    session = &reroute->session;
  } else if (const auto* forget = std::get_if<chain::Forget>(&message)) {
    session = &forget->session;
  } else if (const auto* rest = std::get_if<chain::Rest>(&message)) {
    session = &rest->session;
  } else if (const auto* question = std::get_if<chain::Testify>(&message)) {
    session = &question->session;
  } else if (const auto* keep = std::get_if<chain::Keep>(&message)) {
    session = &keep->session;
  } else if (const auto* part = std::get_if<chain::Adapt>(&message)) {
    session = &part->adapter;
    bytes = part->values.size();
  } else if (const auto* rows = std::get_if<chain::LessonRows>(&message)) {
    session = &rows->lesson;
    bytes = static_cast<size_t>(chain::num_bytes(rows->rows));
  } else if (const auto* lesson = std::get_if<chain::Lesson>(&message)) {
    session = &lesson->lesson;
  }
  const bool is_right =
      session != nullptr && (caller.gateway != 0 ? session->gateway == caller.gateway
                                                 : std::holds_alternative<chain::Work>(message));
  if (!is_right) {
    throw InputError(fmt::format("that is not for it to say: {}", chain::kind_name(message)));
  }
  const MutexLock lock(mutex_);
  if (is_of_lessons(message)) {
    lessons_bytes_ += bytes;
    if (lessons_bytes_ > kMaxLessonsBytes) throw InputError("more of lessons comes than is read");
    lessons_.emplace_back([message = std::move(message)](BlockTrainer& trainer) mutable {
      trainer.hear(std::move(message));
    });
    return arrived_.notify_all();
  }
  jobs_bytes_ += bytes;
  if (jobs_bytes_ > kMaxJobsBytes) throw InputError("more rows come than are read");
  jobs_.emplace_back([message = std::move(message), now = clock_.now()](
                         BlockEngine& engine) mutable { engine.hear(std::move(message), now); });
  arrived_.notify_all();
}

chain::Pong BlockServer::pong(uint64_t number) const {
  const int64_t began = pass_began_;
  const Duration lasts =
      began == 0 ? Duration{} : clock_.now().time_since_epoch() - Duration(began);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(lasts).count();
  return {.number = number,
          .num_passes = num_passes_,
          .pass_ms = began == 0 ? 0 : static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, 1 << 30))};
}

void BlockServer::lose(net::ConnectionId line, const std::string& reason) {
  if (const auto caller = callers_.find(line); caller != callers_.end()) {
    lender_.forget(line);
    const uint64_t gateway = caller->second.gateway;
    const bool was_control = caller->second.plane == net::Plane::kPeer;
    callers_.erase(caller);
    if (gateway == 0) return;
    const MutexLock lock(mutex_);
    const auto lines = gateways_.find(gateway);
    if (lines == gateways_.end()) return;
    net::ConnectionId& known = was_control ? lines->second.control : lines->second.bulk;
    if (known == line) known = 0;
    if (lines->second.control != 0 || lines->second.bulk != 0) return;
    gateways_.erase(lines);
    jobs_.emplace_back([gateway](BlockEngine& engine) { engine.forget_gateway(gateway); });
    lessons_.emplace_back([gateway](BlockTrainer& trainer) { trainer.forget_gateway(gateway); });
    arrived_.notify_all();
    return;
  }
  const MutexLock lock(mutex_);
  std::erase_if(keepers_, [&](const auto& keeper) { return keeper.second == line; });
  const auto found = std::ranges::find_if(
      neighbours_, [&](const auto& neighbour) { return neighbour.second == line; });
  if (found == neighbours_.end()) return;
  options_.log(fmt::format("{} is not reached: {}", found->first, reason));
  jobs_.emplace_back(
      [address = found->first](BlockEngine& engine) { engine.lose_neighbour(address); });
  neighbours_.erase(found);
  arrived_.notify_all();
}

}  // namespace atl::serve
