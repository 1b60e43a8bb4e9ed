#include "atoll/coordinator/run_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/chain/wire.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {
namespace {

constexpr size_t kMaxStrangers = 256;  // Each may hold one unfinished frame.
constexpr size_t kMaxProbeFrameBytes = size_t{kMaxProbeBytes} + 1024;

void require_ids(const std::vector<RunRouter::Run>& runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (runs[k].id == runs[i].id) {
        throw UsageError(fmt::format(
            "'{}' and '{}' are one run ({}): one's folder is a copy of the other's; leave one out",
            runs[k].name, runs[i].name, printable(runs[i].id)));
      }
      if (!runs[i].authority.empty() && runs[k].authority == runs[i].authority) {
        throw UsageError(
            fmt::format("'{}' and '{}' have one authority: one's folder is a copy of "
                        "the other's; leave one out",
                        runs[k].name, runs[i].name));
      }
    }
  }
}

/// What a log says of a first message that is refused.
std::string refused(const Message& first) {
  const auto* hello = std::get_if<Hello>(&first);
  const auto* resume = std::get_if<Resume>(&first);
  if (const auto* relay = std::get_if<RelayHello>(&first)) {
    return fmt::format("relay '{}' was refused", printable(relay->name));
  }
  if (hello == nullptr && resume == nullptr) return "a stranger was turned away";
  return fmt::format("island '{}' was refused", printable(hello ? hello->name : resume->name));
}

/// Why what a first message says of its sender is not what its certificate says; empty where that
/// agrees, and where connections are in the clear.
std::string impostor_in(const Message& first,
                        const std::optional<identity::CertificateFacts>& certificate) {
  if (!certificate) return {};
  const auto* hello = std::get_if<Hello>(&first);
  const auto* resume = std::get_if<Resume>(&first);
  const auto* relay = std::get_if<RelayHello>(&first);
  if (hello == nullptr && resume == nullptr && relay == nullptr) return {};
  const std::string& name = relay ? relay->name : hello ? hello->name : resume->name;
  const identity::PeerId& peer = certificate->peer;
  const auto wanted = relay != nullptr ? identity::Role::kRelay : identity::Role::kIsland;
  if (peer.role != wanted) {
    return fmt::format("its certificate is of role {}, not {}", identity::name_of(peer.role),
                       identity::name_of(wanted));
  }
  if (peer.name == name) return {};
  return fmt::format("it says that it is '{}', and its certificate that it is '{}'",
                     printable(name), peer.name);
}

/// Why it is neither a server nor a gateway; empty if it is one, and where connections are in the
/// clear.
std::string objection_to(const std::optional<identity::CertificateFacts>& certificate) {
  if (!certificate) return {};
  const identity::Role role = certificate->peer.role;
  if (role == identity::Role::kServer || role == identity::Role::kGateway) return {};
  return fmt::format("its certificate is of role {}, not server or gateway",
                     identity::name_of(role));
}

}  // namespace

void require_names(const std::vector<std::string>& names) {
  if (names.size() == 1) return;
  std::set<std::string> taken;
  for (const std::string& name : names) {
    if (!is_valid_name(name)) {
      throw UsageError(
          fmt::format("a run's name must be 1 to 64 letters, digits, '-', '_' or '.'; '{}' is none",
                      printable(name)));
    }
    if (!taken.insert(name).second) {
      throw UsageError(
          fmt::format("two runs are called '{}': islands could not tell which they join", name));
    }
  }
}

RunRouter::RunRouter(std::vector<Run> runs, Duration hello_timeout)
    : hello_timeout_(hello_timeout) {
  ATOLL_CHECK(!runs.empty());
  std::vector<std::string> names;
  for (const Run& run : runs) names.push_back(run.name);
  require_names(names);
  require_ids(runs);
  for (Run& run : runs) runs_.push_back({.run = std::move(run)});
}

RunRouter::Actions RunRouter::take() { return std::exchange(actions_, {}); }

void RunRouter::refuse(Connection connection, const std::string& reason) {
  actions_.emplace_back(Send{connection, Refused{{}, reason}});
  actions_.emplace_back(Close{connection});
}

RunRouter::Actions RunRouter::handle(net::Event event, Time now) {
  if (const auto* opened_event = std::get_if<net::Opened>(&event)) {
    opened(*opened_event, now);
    return take();
  }
  const Connection connection =
      std::visit([](const auto& e) -> Connection { return e.connection; }, event);
  const bool is_lost = std::holds_alternative<net::Lost>(event);
  if (is_lost) num_open_ -= 1;
  if (const auto stranger = strangers_.find(connection); stranger != strangers_.end()) {
    auto* received = std::get_if<net::Received>(&event);
    if (received == nullptr && !is_lost) return take();
    net::Opened opened = std::move(stranger->second.opened);
    strangers_.erase(stranger);
    if (received != nullptr) greet(std::move(opened), std::move(*received), now);
  } else if (probers_.contains(connection)) {
    go_on_probing(event, now);
  } else if (const auto found = routes_.find(connection); found != routes_.end()) {
    const auto [run, is_for_directory] = found->second;
    actions_.emplace_back(Deliver{run, std::move(event), is_for_directory});
    if (is_lost) routes_.erase(found);
  }
  return take();
}

void RunRouter::opened(const net::Opened& event, Time now) {
  num_open_ += 1;
  // No tensor passes through a coordinator.
  const bool is_welcome =
      event.plane == net::Plane::kControl && strangers_.size() < kMaxStrangers && !is_over();
  if (is_welcome) {
    strangers_[event.connection] = {.opened = event, .since = now};
  } else {
    actions_.emplace_back(Close{event.connection});
  }
}

void RunRouter::greet(net::Opened stranger, net::Received first, Time now) {
  if (chain::is_message(first.frame)) return greet_chain(std::move(stranger), std::move(first));
  const Connection connection = stranger.connection;
  Message message;
  try {
    message = decode(first.frame);
  } catch (const InputError& error) {
    actions_.emplace_back(Log{std::string("a stranger was turned away: ") + error.what()});
    return refuse(connection, error.what());
  }
  if (const auto* probe = std::get_if<Probe>(&message)) return begin_probing(stranger, *probe, now);
  const std::string impostor = impostor_in(message, stranger.certificate);
  const Result<size_t> run = impostor.empty() ? find(message, stranger.run) : failure(impostor);
  if (!run) {
    actions_.emplace_back(Log{fmt::format("{}: {}", refused(message), run.error().message)});
    return refuse(connection, run.error().message);
  }
  if (runs_[*run].state == State::kAbandoned) {
    actions_.emplace_back(Close{connection});
    return;
  }
  routes_[connection] = {.run = *run};
  actions_.emplace_back(Deliver{*run, std::move(stranger)});
  actions_.emplace_back(Deliver{*run, std::move(first)});
}

void RunRouter::greet_chain(net::Opened stranger, net::Received first) {
  const Connection connection = stranger.connection;
  const auto run = std::ranges::find_if(runs_, [&](const Routed& routed) {
    return routed.run.authority == stranger.run && routed.state != State::kAbandoned;
  });
  if (run == runs_.end()) {
    actions_.emplace_back(Close{connection});
    return;
  }
  if (const std::string reason = objection_to(stranger.certificate); !reason.empty()) {
    actions_.emplace_back(Log{"a server or gateway was refused: " + reason});
    actions_.emplace_back(RefuseChain{connection, {reason}});
    actions_.emplace_back(Close{connection});
    return;
  }
  const auto number = static_cast<size_t>(run - runs_.begin());
  routes_[connection] = {.run = number, .is_for_directory = true};
  actions_.emplace_back(Deliver{number, std::move(stranger), true});
  actions_.emplace_back(Deliver{number, std::move(first), true});
}

void RunRouter::begin_probing(const net::Opened& stranger, const Probe& probe, Time now) {
  std::vector<Connection> ended;
  const Result<void> admitted = probers_.admit(stranger.connection, stranger.remote, now, ended);
  for (const Connection connection : ended) {
    refuse(connection, "measuring a line takes too long, and others wait");
  }
  if (!admitted) return refuse(stranger.connection, admitted.error().message);
  answer(stranger.connection, probe, now);
}

void RunRouter::answer(Connection connection, const Probe& probe, Time now) {
  if (const Result<void> spent = probers_.spend(connection, probe, now); !spent) {
    return turn_away(connection, spent.error().message, now);
  }
  actions_.emplace_back(Reply{connection, static_cast<size_t>(probe.reply_bytes)});
}

void RunRouter::turn_away(Connection prober, const std::string& reason, Time now) {
  probers_.end(prober, now);
  refuse(prober, reason);
}

void RunRouter::go_on_probing(const net::Event& event, Time now) {
  if (const auto* lost = std::get_if<net::Lost>(&event)) return probers_.end(lost->connection, now);
  const auto* received = std::get_if<net::Received>(&event);
  if (received == nullptr) return;
  const std::string nothing_else = "who measures a line says nothing else";
  if (received->frame.size() > kMaxProbeFrameBytes) {  // Not worth a look.
    return turn_away(received->connection, nothing_else, now);
  }
  try {
    const Message message = decode(received->frame);
    if (const auto* probe = std::get_if<Probe>(&message)) {
      return answer(received->connection, *probe, now);
    }
  } catch (const InputError&) {
  }
  turn_away(received->connection, nothing_else, now);
}

Result<size_t> RunRouter::find(const Message& first, const std::string& authority) const {
  const auto place_of = [&](auto&& is_it) -> std::optional<size_t> {
    const auto found = std::ranges::find_if(
        runs_, [&](const Run& run) { return run.authority == authority && is_it(run); },
        &Routed::run);
    if (found == runs_.end()) return std::nullopt;
    return static_cast<size_t>(found - runs_.begin());
  };
  if (const auto* resume = std::get_if<Resume>(&first)) {
    const auto place = place_of([&](const Run& run) { return run.id == resume->header.run; });
    if (!place) return failure("the run that it was a member of is not here: it must join again");
    return over_or(*place);
  }
  const auto* hello = std::get_if<Hello>(&first);
  const auto* relay = std::get_if<RelayHello>(&first);
  if (hello == nullptr && relay == nullptr) return failure("an island must say Hello first");
  const std::string& name = relay != nullptr ? relay->header.run : hello->header.run;
  if (name.empty() && (runs_.size() == 1 || !authority.empty())) {
    if (const auto only = place_of([](const Run& /*run*/) { return true; })) return over_or(*only);
  }
  if (const auto place = place_of([&](const Run& run) { return run.name == name; })) {
    return over_or(*place);
  }
  if (name.empty()) {
    return failure("this coordinator has several runs; name one, as in HOST:PORT/NAME: " +
                   names(authority));
  }
  return failure(
      fmt::format("this coordinator has no run '{}', but {}", printable(name), names(authority)));
}

Result<size_t> RunRouter::over_or(size_t run) const {
  if (runs_[run].state != State::kOver) return run;
  return failure(fmt::format("the run '{}' is over", runs_[run].run.name));
}

std::string RunRouter::names(const std::string& authority) const {
  if (runs_.size() == 1 && runs_[0].run.name.empty()) return "one without a name";
  std::string list;
  for (const Routed& routed : runs_) {
    if (routed.state == State::kOver || routed.run.authority != authority) continue;
    list += (list.empty() ? "" : ", ") + routed.run.name;
  }
  return list;
}

RunRouter::Actions RunRouter::tick(Time now) {
  std::erase_if(strangers_, [&](const auto& entry) {
    const bool is_late = now - entry.second.since >= hello_timeout_;
    if (is_late) refuse(entry.first, "no Hello in time");
    return is_late;
  });
  for (const Connection connection : probers_.end_late(now)) {
    refuse(connection, "measuring a line takes too long");
  }
  return take();
}

Time RunRouter::next_deadline() const {
  Time earliest = Time::max();
  for (const auto& [_, stranger] : strangers_) {
    earliest = std::min(earliest, stranger.since + hello_timeout_);
  }
  return std::min(earliest, probers_.next_deadline());
}

RunRouter::Actions RunRouter::end(size_t run, State state) {
  runs_.at(run).state = state;
  if (is_over()) {  // They may want a coordinator that is started again: they shall wait for it.
    for (const auto& [connection, _] : std::exchange(strangers_, {})) {
      actions_.emplace_back(Close{connection});
    }
    for (const Connection connection : probers_.end_all()) {
      actions_.emplace_back(Close{connection});
    }
    for (const auto& [connection, route] : routes_) {
      if (route.is_for_directory) actions_.emplace_back(Close{connection});
    }
  }
  return take();
}

RunRouter::Actions RunRouter::end(size_t run) { return end(run, State::kOver); }

RunRouter::Actions RunRouter::abandon(size_t run) {
  std::erase_if(routes_, [&](const auto& entry) {
    if (entry.second.run == run) actions_.emplace_back(Close{entry.first});
    return entry.second.run == run;
  });
  return end(run, State::kAbandoned);
}

bool RunRouter::is_over() const {
  return std::ranges::none_of(runs_,
                              [](const Routed& routed) { return routed.state == State::kServed; });
}

}  // namespace atl::swarm
