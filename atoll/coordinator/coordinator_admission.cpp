// Who is let in: newcomers, and members that come back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

constexpr size_t kMaxAddressBytes = 256;

}  // namespace

void Coordinator::admit(Connection connection, const Hello& hello, Time now) {
  const std::string objection = objection_to(hello);
  if (!objection.empty()) {
    log(IslandRefused{.island = printable(hello.name), .reason = objection});
    return refuse(connection, objection);
  }
  strangers_.erase(connection);
  guests_.come(connection, hello, now);
  log(IslandCame{.island = hello.name, .address = printable(hello.address)});
  send(connection, Welcome{header(), options_.config});
}

std::string Coordinator::objection_to(const Hello& hello) const {
  if (hello.protocol != kProtocolVersion) {
    return fmt::format("protocol version: the coordinator speaks {}, this island {}",
                       kProtocolVersion, hello.protocol);
  }
  if (hello.version != options_.version) {
    return fmt::format("atoll version: the coordinator runs {}, this island {}", options_.version,
                       printable(hello.version));
  }
  if (!is_valid_name(hello.name)) {
    return fmt::format("name: '{}' must be 1 to 64 letters, digits, '-', '_' or '.'",
                       printable(hello.name));
  }
  if (hello.address.size() > kMaxAddressBytes) {  // All addresses must fit into one Start.
    return fmt::format("address: {} bytes are no HOST:PORT", hello.address.size());
  }
  for (const auto& [name, text] : hello.settings) {
    const auto own = options_.settings.find(name);
    if (own == options_.settings.end()) {
      return fmt::format("{}: the coordinator has no such setting", printable(name));
    }
    if (own->second != text) {
      return fmt::format("{}: the coordinator has {}, this island asked for {}", name, own->second,
                         printable(text));
    }
  }
  const bool is_member = std::ranges::any_of(roster_.seats(), [&](const auto& entry) {
    const Seat& seat = entry.second;
    const bool is_heard = seat.state() == State::kActive || seat.state() == State::kBehind;
    return seat.connection() && is_heard && name(entry.first) == hello.name;
  });
  if (guests_.has(hello.name) || is_member) {
    return fmt::format("name: an island named '{}' takes part already; choose another", hello.name);
  }
  if (guests_.is_full()) return "too many islands want to join at once";
  return {};
}

std::string Coordinator::objection_to(const Resume& resume) const {
  const auto found = book_.members().find(resume.number);
  // Numbers begin anew where a journal was lost; terms do not.
  const bool is_of_this = resume.header.run == options_.run &&
                          resume.header.term >= book_.first_term() &&
                          resume.header.term <= book_.term();
  const bool is_member =
      is_of_this && found != book_.members().end() && found->second.name == resume.name;
  if (!is_member) return "this island is no member any more: it must join again";
  const State state = roster_.at(resume.number).state();
  if (state == State::kLeaving || state == State::kLeft) return "this island has left";
  if (resume.address.size() > kMaxAddressBytes) return "address: too long";
  if (!book_.leases().is_possible(resume.number, resume.num_leased)) {
    return "it has rows that were not leased to it: it must join again";
  }
  const uint64_t num_commits = book_.num_commits();
  if (resume.num_commits > num_commits) {
    return fmt::format("it knows of {} commits, where this coordinator knows of {}",
                       resume.num_commits, num_commits);
  }
  if (num_commits - resume.num_commits > book_.history().size()) {
    return "it was away for too many rounds: it must join again";
  }
  return {};
}

std::string Coordinator::objection_to(const RelayHello& hello) const {
  if (hello.version != options_.version) {
    return fmt::format("atoll version: the coordinator runs {}, this relay {}", options_.version,
                       printable(hello.version));
  }
  if (!is_valid_name(hello.name)) return fmt::format("'{}' is no name", printable(hello.name));
  if (hello.address.size() > kMaxAddressBytes) return "its address is too long";
  return {};
}

void Coordinator::take_relay(Connection connection, const RelayHello& hello) {
  std::optional<Connection> replaced;
  std::string objection = objection_to(hello);
  if (objection.empty()) {
    objection = meetings_.relay_came(connection, hello.name, hello.address, replaced);
  }
  if (replaced) actions_.emplace_back(Close{*replaced});
  if (!objection.empty()) {
    log(RelayRefused{.relay = printable(hello.name), .reason = objection});
    return refuse(connection, objection);
  }
  strangers_.erase(connection);
  log(RelayCame{.relay = hello.name, .address = printable(hello.address)});
  send(connection, View{header(), view_, {}, revocations_});
  arrange_meetings();
}

void Coordinator::resume(Connection connection, const Resume& resume, Time now) {
  if (const std::string objection = objection_to(resume); !objection.empty()) {
    log(IslandRefused{.island = printable(resume.name), .reason = objection});
    return refuse(connection, objection);
  }
  strangers_.erase(connection);
  Seat& seat = roster_.at(resume.number);
  if (const auto old = seat.connection()) {  // Its old one, whose end was not heard of yet.
    actions_.emplace_back(Close{*old});
    roster_.disconnect(*old);
    if (seat.state() == State::kActive) put_away(resume.number, "it has come back", now);
  }
  roster_.connect(resume.number, connection);
  links_.forget_reports_of(resume.number);
  meetings_.forget(resume.number);
  // It has let go of what it exchanged, but for what it had prepared.
  rounds_.let_go(resume.number);
  seat.come_back(resume.first_round, now);
  call(resume.number);
  log(IslandBack{resume.name});
  send(connection,
       Resumed{header(), view_, peers(), book_.leases().behind(resume.number, resume.num_leased)});
  if (!revocations_.empty()) send(connection, View{header(), view_, peers(), revocations_});
  for (const Committed& committed : book_.history()) {
    if (committed.index >= resume.num_commits) send(connection, message_of(committed));
  }
  if (seat.is_live()) say_due(seat);
  note_membership();
  advance_all();
  seat_guests(now);
}

}  // namespace atl::swarm
