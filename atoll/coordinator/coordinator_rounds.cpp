// From the first Begin of a round to its commit.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

void Coordinator::on(int32_t number, const Begin& begin) {
  const int64_t round_number = begin.header.round;
  if (const std::string fault = fault_of(begin); !fault.empty()) return violate(number, fault);
  if (!book_.leases().is_possible(number, begin.num_trained)) {
    return violate(number,
                   fmt::format("began round {} with rows that it does not have", round_number));
  }
  if (begin.fragment >= options_.num_fragments && begin.fragment != kNoFragment) {
    return violate(number,
                   fmt::format("began round {} of fragment {}", round_number, begin.fragment));
  }
  const auto held = book_.held().find(begin.fragment);
  const Committed* const lost = rounds_.lost(round_number);
  const bool is_decided = held != book_.held().end() && round_number <= held->second.round;
  if (is_decided && lost == nullptr) return;  // It hears of it.
  if (!rounds_.has(round_number) && rounds_.all().size() >= OpenRounds::kMost) {
    return violate(number, fmt::format("began round {} with {} open already", round_number,
                                       rounds_.all().size()));
  }
  if (const std::string objection = pace_->objection_to(begin, book_); !objection.empty()) {
    return violate(number, objection);
  }
  Round& round = rounds_.begin(round_number);
  if (const auto contradiction = round.contradiction(number, begin)) {
    const auto& [other, how] = *contradiction;
    return fail(fmt::format("round {}: islands '{}' and '{}' differ: {}", round_number, name(other),
                            name(number), how));
  }
  const bool is_first =
      round.begin(number, lost != nullptr ? as_in(*lost, number, begin) : begin, now_);
  if (is_first && pace_->note_begin(number, book_, roster_, now_)) say_due();
  roster_.at(number).note_trained(begin.num_trained);
  advance(round_number);
}

void Coordinator::advance_all() {
  for (const int64_t number : rounds_.numbers()) {
    if (!finished_ && rounds_.has(number)) advance(number);
  }
}

void Coordinator::advance(int64_t number) {
  Round& round = rounds_.at(number);
  const std::set<int32_t> live = roster_.live();
  const bool may_end = round.is_complete(live) && rounds_.is_next(number);
  if (may_end && (rounds_.lost(number) != nullptr || !leave_outliers_out(number, round))) {
    return commit(number);
  }
  std::vector<int32_t> awaited = roster_.expected(number);
  if (!round.begun().empty() && now_ >= pace_->grace_ends(awaited)) {
    std::erase_if(awaited, [&](int32_t member) { return !round.has_begun(member); });
  }
  const auto are_few = [&](const std::vector<int32_t>& members) {
    return members.empty() || std::cmp_less(members.size(), least_for_round());
  };
  if (are_few(awaited) || !round.have_begun(awaited)) return;
  // A connection that broke is made again, or its ends meet somewhere.
  const bool may_mend = links_.may_mend(awaited, now_) || meetings_.are_expected(awaited, now_);
  if (may_mend && round.may_wait_for_links(now_)) return;
  std::vector<int32_t> members = plan_members(awaited, round.begun(), links_.closed_in(number));
  if (are_few(members)) {  // Rather over a link that is not trusted.
    members = plan_members(std::move(awaited), round.begun(), links_.broken());
  }
  if (round.goes_on(live, members)) return;
  are_few(members) ? round.break_off() : open(number, round, std::move(members));
}

void Coordinator::open(int64_t number, Round& round, std::vector<int32_t> members) {
  OpenAttempt attempt = round.open(number, std::move(members));
  attempt.header = header(number, round.attempt());
  attempt.view = view_;
  for (const int32_t member : round.members()) send_to(roster_.at(member), attempt);
  note_unreachable(number, round);
}

void Coordinator::note_unreachable(int64_t number, const Round& round) {
  std::set<int32_t> wanting;
  for (const auto& [member, begin] : round.begun()) {
    if (roster_.at(member).is_live()) wanting.insert(member);
  }
  for (const auto& [a, b] : links_.news(number, round.members(), wanting)) {
    const bool has_a = round.takes_part(a);
    log(IslandUnreachable{
        .island = name(has_a ? b : a), .other = name(has_a ? a : b), .round = number});
  }
}

void Coordinator::on(int32_t number, const Prepared& prepared) {
  Round* const round = rounds_.find(prepared.header.round);
  if (round == nullptr) return;  // Committed without it.
  const int32_t attempt = prepared.header.attempt;
  if (attempt > round->attempt() || attempt < 0) {
    return violate(number, fmt::format("prepared round {}, attempt {}, which is not open",
                                       prepared.header.round, attempt));
  }
  // It does not know of the next one yet, or was left out meanwhile.
  if (attempt < round->attempt() || !round->takes_part(number)) return;
  const std::string objection = round->objection_to(number, prepared);
  if (!objection.empty()) return violate(number, objection);
  round->prepare(number, prepared);
  advance(prepared.header.round);
}

void Coordinator::commit(int64_t number) {
  const Round& round = rounds_.at(number);
  const auto& [first_member, first] = *round.prepared().begin();
  const Digest digest = first.digest;
  for (const auto& [member, other] : round.prepared()) {
    if (other.digest == digest) continue;
    return fail(fmt::format("round {}: the results differ: '{}' has {}, '{}' has {}", number,
                            name(first_member), hex(digest).substr(0, 12), name(member),
                            hex(other.digest).substr(0, 12)));
  }
  if (const Committed* const lost = rounds_.lost(number)) return tell_again(round, *lost, digest);
  Committed committed = round.result();
  committed.index = book_.num_commits();
  committed.held.step = pace_->step_after(round, book_);
  std::vector<std::string> abstainers;
  for (size_t rank = 0; rank < committed.members.size(); ++rank) {
    const int32_t member = committed.members[rank];
    roster_.at(member).contribute();
    if (committed.weights[rank] == 0 && !round.is_left_out(member)) {
      abstainers.push_back(name(member));
    }
  }
  record(committed);
  count(committed);
  links_.carried(round.members());
  for (const auto& [member, prepared] : round.prepared()) {
    roster_.at(member).note_commit(committed.index);
  }
  broadcast(message_of(committed));
  log(RoundCommitted{.round = number,
                     .fragment = committed.held.fragment,
                     .step = committed.held.step,
                     .digest = hex(digest),
                     .abstainers = abstainers,
                     .is_last = pace_->stops_with(committed)},
      /*of_membership=*/false);
  rounds_.settle(number, committed.held.fragment);
  pace_->settle(number);
  grant_rows();
  seat_guests(now_);
  note_membership();  // After the first period more are needed.
  call_round();
}

Commit Coordinator::message_of(const Committed& committed) const {
  return {.header = header(committed.held.round, committed.attempt),
          .index = committed.index,
          .held = committed.held,
          .count = committed.count,
          .segment_values = committed.segment_values,
          .members = committed.members,
          .weights = committed.weights,
          .stop = pace_->stops_with(committed)};
}

void Coordinator::call_round() {
  if (finished_ || !rounds_.all().empty() || roster_.num_live() < least_for_round()) return;
  if (pace_->call(book_, roster_, now_)) say_due();
}

void Coordinator::say_due() {
  for (const auto& [number, seat] : roster_.seats()) say_due(seat);
}

/// To who takes part; said again, it is not heard twice.
void Coordinator::say_due(const Seat& seat) {
  if (const auto due = pace_->due(); due && seat.is_live()) send_to(seat, *due);
}

void Coordinator::grant_rows() {
  const bool rounds_wait = roster_.num_live() < quorum_.least(book_);
  for (const Granted& grant : pace_->grants(book_, roster_, rounds_wait)) {
    for (auto& [number, units] : record(grant)) {
      send_to(roster_.at(number), Lease{header(), std::move(units)});
    }
  }
}

void Coordinator::on(int32_t number, const LinkState& link) {
  if (!roster_.contains(link.other) || link.other == number) return;
  if (roster_.at(link.other).state() == State::kLeft) return;
  const auto pair = std::minmax(number, link.other);
  const bool both_live = roster_.at(number).is_live() && roster_.at(link.other).is_live();
  if (link.up) {
    const bool is_news = links_.stands(number, link.other, link.way);
    if (!links_.is_broken(pair)) meetings_.stands(pair, link.way);
    if (!is_news) return;
    const auto* const detour = meetings_.detour(pair);
    if (both_live || detour != nullptr) {  // Of who was lost it is known.
      log(LinkBack{.islands = {name(pair.first), name(pair.second)},
                   .way = std::string(net::name_of(link.way)),
                   .relay = detour != nullptr ? detour->relay : ""});
    }
    return advance_all();  // Rounds may have waited for it.
  }
  const bool is_news = links_.broke(number, link.other, now_);
  bool is_mistrusted = false;
  for (const int64_t round_number : rounds_.numbers()) {
    Round& round = rounds_.at(round_number);
    if (is_news && links_.mistrust(pair, round_number, round.members())) is_mistrusted = true;
    round.break_link(pair);  // What this end was to send went with its end of the link.
  }
  if (!is_news) return advance_all();
  meetings_.broke(pair, now_, is_mistrusted);
  if (both_live) {  // Of who is lost it is known.
    log(LinkLost{.islands = {name(number), name(link.other)}, .reason = printable(link.reason)});
  }
  arrange_meetings();
  advance_all();
}

void Coordinator::arrange_meetings() {
  if (!meetings_.any_due(now_)) return;
  std::vector<Meetings::Host> hosts;
  for (const int32_t number : roster_.in(State::kActive)) {
    const Peer& peer = book_.members().at(number);
    if (!roster_.at(number).is_reachable()) continue;
    hosts.push_back({.number = number, .name = peer.name, .address = peer.address});
  }
  std::vector<int32_t> here;
  for (const auto& [number, seat] : roster_.seats()) {
    if (seat.is_here() && seat.connection()) here.push_back(number);
  }
  for (const auto& [pair, relay, host, circuit, may_punch] :
       meetings_.take_due(here, hosts, now_)) {
    if (host) send_to(roster_.at(*host), PassOn{header(), circuit});
    const Seat& a = roster_.at(pair.first);
    const Seat& b = roster_.at(pair.second);
    Meet meet{.header = header(), .relay = relay, .circuit = circuit, .may_punch = may_punch};
    meet.other = pair.second;
    send_to(a, meet);
    meet.other = pair.first;
    send_to(b, meet);
  }
}

}  // namespace atl::swarm
