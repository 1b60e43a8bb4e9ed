// The servers of remote layers: lines to them, and what they say.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/name.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/wire.h"
#include "atoll/serve/lesson_values.h"
#include "atoll/serve/remote_layers.h"
#include "atoll/swarm/version.h"

namespace atl::serve {
namespace {

constexpr Duration kBetweenPings = std::chrono::seconds(2);
constexpr Duration kToldAgain = std::chrono::seconds(30);
constexpr Duration kForLeases = std::chrono::seconds(2);  // To be heard of.
constexpr int64_t kMostForgotten = 100;

}  // namespace

RemoteLayers::Server& RemoteLayers::call(const std::string& address) {
  Server& server = servers_[address];
  if (server.line != 0) return server;
  server.line = lines_.call(address, net::Plane::kBulk);
  server.heard = server.answered = clock_.now();
  addresses_[server.line] = address;
  lines_.send(server.line, chain::Greet{.protocol = chain::kProtocol,
                                        .version = swarm::program_version(),
                                        .model = options_.digest,
                                        .gateway = gateway_});
  return server;
}

RemoteLayers::Trip* RemoteLayers::asked_by(uint64_t number, std::vector<Trip>& trips) {
  const auto found = std::ranges::find_if(
      trips, [&](const Trip& trip) { return trip.asked && trip.asked->number == number; });
  return found == trips.end() ? nullptr : &*found;
}

void RemoteLayers::handle(const net::Event& event, std::vector<Trip>& trips) {
  const auto line = std::visit([](const auto& any) { return any.connection; }, event);
  if (post_.owns(line)) return post_.handle(event, clock_.now());
  lines_.note(event);
  const auto found = addresses_.find(line);
  if (found == addresses_.end()) return;
  const std::string address = found->second;
  if (const auto* lost = std::get_if<net::Lost>(&event)) {
    lose(address, lost->reason, trips);
  } else if (const auto* opened = std::get_if<net::Opened>(&event)) {
    const std::string objection = objection_to(address, *opened);
    if (!objection.empty()) lose(address, objection, trips);
  } else if (std::holds_alternative<net::Writable>(event)) {  // It takes what it is sent.
    servers_.at(address).heard = servers_.at(address).answered = clock_.now();
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    servers_.at(address).heard = clock_.now();
    std::optional<chain::Message> message;
    try {
      message = chain::decode(received->frame);
    } catch (const InputError& error) {
      return lose(address, error.what(), trips);
    }
    try {
      hear(address, *message, trips);
    } catch (const InputError& error) {
      failure_ = fmt::format("what the server at {} makes of a micro-batch cannot be: {}", address,
                             error.what());
    }
  }
}

/// Why it is not the server that the coordinator knows at that address; empty where it is, and in
/// the clear.
std::string RemoteLayers::objection_to(const std::string& address,
                                       const net::Opened& opened) const {
  if (!opened.certificate) return {};
  const identity::PeerId& peer = opened.certificate->peer;
  const bool is_known = std::ranges::any_of(post_.servers(), [&](const chain::Lease& lease) {
    return lease.address == address && lease.name == peer.name;
  });
  if (peer.role == identity::Role::kServer && is_known) return {};
  return "another member is there: " + peer.name;
}

/// Where in the adapter's values those of these layers lie; none of a soft prompt.
std::pair<int64_t, int64_t> RemoteLayers::places_of(chain::Span layers) const {
  return adapter_->values_of({layers.begin, layers.end});
}

void RemoteLayers::hear(const std::string& address, const chain::Message& message,
                        std::vector<Trip>& trips) {
  const auto of = [&](const chain::SessionId& lesson) -> Trip* {
    Trip* const trip = asked_by(lesson.number, trips);
    if (trip == nullptr || trip->asked->address != address) return nullptr;
    servers_.at(address).answered = clock_.now();
    return trip;
  };
  if (const auto* rows = std::get_if<chain::LessonRows>(&message)) {
    // Else late: it was asked for elsewhere.
    if (Trip* const trip = of(rows->lesson)) hear_rows(*trip->asked, *rows);
  } else if (const auto* values = std::get_if<chain::LessonValues>(&message)) {
    if (Trip* const trip = of(values->lesson)) hear_values(*trip, *values);
  } else if (const auto* learnt = std::get_if<chain::Learnt>(&message)) {
    Trip* const trip = of(learnt->lesson);
    if (trip == nullptr) return;
    const Asked& asked = *trip->asked;
    const int64_t count = asked.goes_back ? places_of(asked.layers).second : 0;
    const int64_t rows_wanted = asked.made_BTC.size(0) * asked.made_BTC.size(1);
    if (asked.num_rows != rows_wanted || asked.num_values != count) {
      throw InputError("an answer of which parts are missing");
    }
    take_answer(*trip);
  } else if (const auto* trouble = std::get_if<chain::Trouble>(&message)) {
    hear_trouble(address, *trouble, trips);
  } else if (const auto* refused = std::get_if<chain::Refused>(&message)) {
    lose(address, printable(refused->reason), trips);
  } else if (!std::holds_alternative<chain::Greeted>(message) &&
             !std::holds_alternative<chain::Pong>(message)) {
    lose(address, "who trains is not told " + chain::kind_name(message), trips);
  }
}

void RemoteLayers::hear_rows(Asked& asked, const chain::LessonRows& rows) const {
  if (rows.rows.begin != asked.num_rows || rows.rows.precision != options_.precision) {
    throw InputError("rows that do not follow each other");
  }
  put_rows(rows.rows, asked.made_BTC);
  asked.num_rows = rows.rows.end();
}

void RemoteLayers::hear_values(Trip& trip, const chain::LessonValues& values) const {
  const auto [begin, count] = places_of(trip.asked->layers);
  if (!trip.asked->goes_back || values.begin != trip.asked->num_values) {
    throw InputError("gradients that do not follow each other");
  }
  trip.asked->num_values +=
      put_values(values.values, values.begin, trip.gradients_P.narrow(0, begin, count));
}

void RemoteLayers::hear_trouble(const std::string& address, const chain::Trouble& trouble,
                                std::vector<Trip>& trips) {
  const std::string reason = printable(trouble.reason);
  Trip* const trip = asked_by(trouble.session.number, trips);
  const bool is_asked = trip != nullptr && trip->asked->address == address;
  const bool is_of_adapter =
      trouble.session.number == kAdapter && !servers_.at(address).adapted.empty();
  if (!is_asked && !is_of_adapter) return;  // Late: it was asked for elsewhere.
  if (trouble.fault == chain::Fault::kBroken || trouble.fault == chain::Fault::kDamaged) {
    failure_ = fmt::format(
        "the server at {} could not read a micro-batch: {}; where it is not the server that is "
        "damaged, a lower train.lr may help",
        address, reason);
    return;
  }
  if (!is_asked) return;  // What is asked with the adapter says what it comes to.
  Server& server = servers_.at(address);
  // It may have forgotten the adapter once; who says so again and again is of no use.
  if (trouble.fault == chain::Fault::kNotKept && ++server.num_forgotten <= kMostForgotten) {
    server.adapted.clear();
    trip->asked.reset();
    return;
  }
  const bool lacks_memory = trouble.fault == chain::Fault::kNoMemory;
  lose(address,
       lacks_memory
           ? reason + "; a lower train.micro_batch_rows or adapter.in_flight asks less of it"
           : reason,
       trips);
}

/// What it was asked for is asked elsewhere.
void RemoteLayers::lose(const std::string& address, const std::string& reason,
                        std::vector<Trip>& trips) {
  const auto server = servers_.find(address);
  if (server == servers_.end()) return;
  addresses_.erase(server->second.line);
  lines_.close(server->second.line);
  servers_.erase(server);
  avoided_[address] = clock_.now() + options_.avoidance;
  int64_t num_asked = 0;
  for (Trip& trip : trips) {
    if (!trip.asked || trip.asked->address != address) continue;
    trip.asked.reset();
    note_failure(trip, address, reason);
    ++num_asked;
  }
  if (num_asked == 0) return;
  ++num_lost_;
  options_.log(
      fmt::format("the server at {} is gone ({}); what {} micro-batches wanted of it is "
                  "asked elsewhere",
                  address, reason, num_asked));
}

/// Another server may do better; not if none has for long.
void RemoteLayers::note_failure(Trip& trip, const std::string& address, const std::string& reason) {
  const Time now = clock_.now();
  if (!trip.fails_since) trip.fails_since = now;
  if (now - *trip.fails_since <= options_.patience) return;
  failure_ = fmt::format(
      "servers have failed for {} minutes with a micro-batch that they were asked for again and "
      "again; the last is at {}: {}",
      options_.patience / std::chrono::minutes(1), address, reason);
}

void RemoteLayers::look_after_servers(Time now, std::vector<Trip>& trips) {
  std::erase_if(avoided_, [&](const auto& entry) { return entry.second <= now; });
  std::vector<std::pair<std::string, const char*>> silent;
  for (auto& [address, server] : servers_) {
    const bool is_asked = std::ranges::any_of(
        trips, [&](const Trip& trip) { return trip.asked && trip.asked->address == address; });
    if (!is_asked) continue;
    if (now - server.heard > options_.silence) {
      silent.emplace_back(address, "it says nothing");
    } else if (now - server.answered > options_.patience) {
      silent.emplace_back(address, "it says that it is there, and answers nothing");
    }
    if (now - server.pinged < kBetweenPings) continue;
    server.pinged = now;
    lines_.send(server.line, chain::Ping{});
  }
  for (const auto& [address, reason] : silent) lose(address, reason, trips);
}

void RemoteLayers::wait_for_servers(bool has_route, Time now) {
  if (has_route) {
    waits_since_.reset();
    return;
  }
  if (!waits_since_) {
    waits_since_ = now;
    told_ = now - kToldAgain + kForLeases;
  }
  const auto all = candidates();
  const chain::Span missing =
      chain::missing_layers(all, {0, static_cast<int32_t>(model_.num_layers)});
  const std::string what = missing.size() > 0
                               ? chain::text_of(missing) + " of the model are with no server"
                               : "no servers can be reached";
  if (options_.stops()) throw Interrupted("stopped while " + what);
  if (now - *waits_since_ > options_.patience) {
    throw InputError(
        fmt::format("{} for {} minutes; start some (`atoll serve --join {}`), or train "
                    "on layers here, without --servers",
                    what, options_.patience / std::chrono::minutes(1), options_.post.coordinator));
  }
  if (now - told_ < kToldAgain) return;
  told_ = now;
  options_.log(what + "; they are awaited");
}

}  // namespace atl::serve
