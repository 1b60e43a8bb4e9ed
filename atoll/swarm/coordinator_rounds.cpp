// From the first Begin of a round to its commit.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

constexpr size_t kMaxOpenRounds = 256;   // Methods keep a handful open.
constexpr int64_t kLeadParts = 4;        // Of a long lead of rows, one at a time is granted.
constexpr int64_t kLongestMistrust = 8;  // Rounds.

}  // namespace

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
  if (held != book_.held().end() && round_number <= held->second.round) return;  // It hears of it.
  if (!rounds_.contains(round_number) && rounds_.size() >= kMaxOpenRounds) {
    return violate(
        number, fmt::format("began round {} with {} open already", round_number, rounds_.size()));
  }
  if (const std::string objection = objection_to(begin); !objection.empty()) {
    return violate(number, objection);
  }
  Round& round = rounds_[round_number];
  for (const auto& [other, first] : round.begun) {
    if (other == number) continue;
    const std::string difference = difference_of(first, begin);
    if (!difference.empty()) {
      return fail(fmt::format("round {}: islands '{}' and '{}' differ: {}", round_number,
                              name(other), name(number), difference));
    }
    break;
  }
  if (round.begun.empty()) round.waits = now_;
  const bool is_first = round.begun.insert_or_assign(number, begin).second;
  if (round.left_out.contains(number)) round.begun.at(number).weight = 0;  // It may not know yet.
  if (is_elastic() && is_first) note_begin(number, begin);
  round.attempt = std::max(round.attempt, begin.header.attempt);
  highest_begun_ = std::max(highest_begun_, round_number);
  Seat& seat = seats_.at(number);
  seat.num_trained = std::max(seat.num_trained, begin.num_trained);
  advance(round_number);
}

std::vector<int32_t> Coordinator::expected(int64_t round) const {
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) {
    if (is_live(seat) && seat.first_round <= round) numbers.push_back(number);
  }
  return numbers;
}

void Coordinator::advance_all() {
  std::vector<int64_t> numbers;
  for (const auto& [number, round] : rounds_) numbers.push_back(number);
  for (const int64_t number : numbers) {
    if (!finished_ && rounds_.contains(number)) advance(number);
  }
}

void Coordinator::advance(int64_t number) {
  Round& round = rounds_.at(number);
  const auto is_here = [&](int32_t member) {
    const auto found = seats_.find(member);
    return found != seats_.end() && is_live(found->second);
  };
  const auto has_prepared = [&](int32_t member) {
    return !is_here(member) || round.prepared.contains(member);
  };
  // An attempt that all who are left have completed stands: who is lost since has sent its part.
  const bool is_whole = !round.has(kNobody);
  if (is_whole && !round.prepared.empty() && std::ranges::any_of(round.members, is_here) &&
      std::ranges::all_of(round.members, has_prepared)) {
    if (!leave_outliers_out(number, round)) return commit(number);
  }
  std::vector<int32_t> awaited = expected(number);
  if (is_elastic() && !round.begun.empty() && now_ >= grace_ends(round, awaited)) {
    std::erase_if(awaited, [&](int32_t member) { return !round.begun.contains(member); });
  }
  if (awaited.empty() || std::cmp_less(awaited.size(), least_for_round())) return;
  const bool all_begun =
      std::ranges::all_of(awaited, [&](int32_t member) { return round.begun.contains(member); });
  if (!all_begun) return;
  const Pairs no_links = no_links_in(number);
  Ways ways = plan_ways(std::move(awaited), round.begun, no_links);
  const bool can_be_completed =
      !round.members.empty() && are_open({round.members, round.relays}, no_links) &&
      std::ranges::all_of(round.members, [&](int32_t member) {
        return is_here(member) && std::ranges::find(ways.members, member) != ways.members.end();
      });
  if (!can_be_completed) open(number, round, std::move(ways));
}

/// A link that broke in an exchange may stand again and carry nothing (a path that drops what is
/// large). That round does without it; when it breaks in a later one before it has carried any, so
/// do twice as many. Both ends say that it broke: it counts once.
void Coordinator::mistrust(const std::pair<int32_t, int32_t>& pair) {
  for (const auto& [number, round] : rounds_) {
    if (are_open({round.members, round.relays}, {pair})) continue;  // It does without that link.
    Mistrust& mistrust = mistrusted_[pair];
    if (number <= mistrust.last_round) continue;
    mistrust.num_rounds = std::clamp<int64_t>(2 * mistrust.num_rounds, 1, kLongestMistrust);
    mistrust.last_round = number + mistrust.num_rounds - 1;
  }
}

Pairs Coordinator::no_links_in(int64_t round) const {
  Pairs pairs = no_links_;
  for (const auto& [pair, mistrust] : mistrusted_) {
    if (round <= mistrust.last_round) pairs.insert(pair);
  }
  return pairs;
}

/// Those that a round's members have used.
void Coordinator::trust_links(const Round& round) {
  const Ways ways = {round.members, round.relays};
  std::erase_if(mistrusted_, [&](const auto& entry) { return !are_open(ways, {entry.first}); });
}

void Coordinator::open(int64_t number, Round& round, Ways ways) {
  const Begin& first = round.begun.at(ways.members.front());
  round.attempt += 1;
  round.members = std::move(ways.members);
  round.relays = std::move(ways.relays);
  round.prepared.clear();
  OpenAttempt attempt{.header = header(number, round.attempt),
                      .view = view_,
                      .fragment = first.fragment,
                      .count = first.count,
                      .segment_values = first.segment_values,
                      .members = round.members,
                      .relays = round.relays};
  std::vector<int64_t> rates;
  for (const int32_t member : round.members) {
    attempt.weights.push_back(round.begun.at(member).weight);
    rates.push_back(round.begun.at(member).rate);
  }
  attempt.shares = shares_by_rate(num_segments(first.count, first.segment_values), rates);
  for (const int32_t member : round.members) send_to(seats_.at(member), attempt);
  note_ways(number, round);
}

void Coordinator::note_ways(int64_t number, const Round& round) {
  const auto wants_in = [&](int32_t member) {
    return round.begun.contains(member) && is_live(seats_.at(member));
  };
  for (const auto& pair : no_links_in(number)) {
    const auto& [a, b] = pair;
    if (!wants_in(a) || !wants_in(b) || (!round.has(a) && !round.has(b))) continue;
    const auto relay = std::ranges::find_if(
        round.relays, [&](const Relay& other) { return other.a == a && other.b == b; });
    const bool is_relayed = relay != round.relays.end();
    const auto [said, is_new] = is_relayed_.try_emplace(pair, is_relayed);
    if (!is_new && std::exchange(said->second, is_relayed) == is_relayed) continue;
    if (is_relayed) {
      log(fmt::format("islands '{}' and '{}' exchange through '{}' from round {} on", name(a),
                      name(b), name(relay->via), number));
    } else {
      log(
          fmt::format("round {} goes on without island '{}': it cannot reach '{}', and no third "
                      "island reaches both",
                      number, name(round.has(a) ? b : a), name(round.has(a) ? a : b)));
    }
  }
}

void Coordinator::on(int32_t number, const Prepared& prepared) {
  const auto found = rounds_.find(prepared.header.round);
  if (found == rounds_.end()) return;  // Committed without it.
  Round& round = found->second;
  const int32_t attempt = prepared.header.attempt;
  if (attempt > round.attempt || attempt < 0) {
    return violate(number, fmt::format("prepared round {}, attempt {}, which is not open",
                                       prepared.header.round, attempt));
  }
  // It does not know of the next one yet, or was left out meanwhile.
  if (attempt < round.attempt || !round.has(number)) return;
  const bool is_whole = !round.has(kNobody);
  std::string fault = fault_of(prepared);
  if (fault.empty() && is_whole && prepared.sums_of_squares.size() != round.members.size()) {
    fault = fmt::format("prepared round {} with other members than it has", prepared.header.round);
  }
  if (!fault.empty()) return violate(number, fault);
  if (!round.prepared.emplace(number, prepared).second) {
    return violate(number, fmt::format("prepared round {} twice", prepared.header.round));
  }
  advance(prepared.header.round);
}

void Coordinator::commit(int64_t number) {
  const Round& round = rounds_.at(number);
  const auto& [first_member, first] = *round.prepared.begin();
  const Digest digest = first.digest;
  for (const auto& [member, other] : round.prepared) {
    if (other.digest == digest) continue;
    return fail(fmt::format("round {}: the results differ: '{}' has {}, '{}' has {}", number,
                            name(first_member), hex(digest).substr(0, 12), name(member),
                            hex(other.digest).substr(0, 12)));
  }
  const Begin& begin = round.begun.at(first_member);
  Committed committed{
      .index = book_.num_commits(),
      .attempt = round.attempt,
      .held = {begin.fragment, number, is_elastic() ? step_after(round) : begin.step, digest},
      .count = begin.count,
      .segment_values = begin.segment_values,
      .members = round.members};
  std::vector<std::string> abstainers;
  for (const int32_t member : round.members) {
    const Begin& own = round.begun.at(member);
    committed.weights.push_back(own.weight);
    committed.num_trained.push_back(own.num_trained);
    if (own.weight == 0 && !round.left_out.contains(member)) abstainers.push_back(name(member));
    seats_.at(member).is_new = false;
  }
  record(committed);
  count(committed);
  note_norms(round, begin.fragment);
  trust_links(round);
  for (const auto& [member, prepared] : round.prepared) {
    uint64_t& caught_up = seats_.at(member).caught_up;
    if (caught_up == committed.index) caught_up += 1;
  }
  broadcast(message_of(committed));
  log(fmt::format("round {} committed: step {}, digest {}{}{}", number, committed.held.step,
                  hex(digest).substr(0, 12),
                  abstainers.empty()
                      ? std::string()
                      : fmt::format(", without '{}' (abstained)", fmt::join(abstainers, "', '")),
                  stops_with(committed) ? ", stopping" : ""),
      /*event=*/false);
  // Rounds of the fragment that were left behind will never be.
  std::erase_if(rounds_, [&](const auto& entry) {
    return entry.first == number || entry.second.begun.empty() ||
           (entry.first < number &&
            entry.second.begun.begin()->second.fragment == committed.held.fragment);
  });
  if (due_ && due_->header.round <= number) due_.reset();
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
          .stop = stops_with(committed)};
}

/// Keeps everybody in rows. Those who are level get them together, dealt in turn, and with them
/// those for whom rounds wait: who comes back as it was has its rows. In elastic pace each gets
/// them at its own speed.
void Coordinator::grant_rows() {
  const auto is_short = [&](int32_t number, const Seat& seat) {
    const auto found = book_.leases().members().find(number);
    const int64_t granted = found == book_.leases().members().end() ? 0 : found->second.num_granted;
    return granted - seat.num_trained < std::max(options_.steps_ahead, seat.rows_ahead);
  };
  const auto give = [&](const std::vector<int32_t>& numbers, int64_t count) {
    for (auto& [number, units] : record(Granted{numbers, count})) {
      send_to(seats_.at(number), Lease{header(), std::move(units)});
    }
  };
  std::vector<int32_t> level;
  std::vector<int32_t> alone;
  bool any_level_is_short = false;
  const bool rounds_wait = !is_elastic() && num_live() < least_replicas();
  for (const auto& [number, seat] : seats_) {
    const bool is_awaited = rounds_wait && seat.state == State::kAway;
    if (!is_live(seat) && seat.state != State::kBehind && !is_awaited) continue;
    if (is_awaited) {
      level.push_back(number);
    } else if (is_live(seat) && !is_elastic()) {
      level.push_back(number);
      any_level_is_short = any_level_is_short || is_short(number, seat);
    } else if (is_short(number, seat)) {
      alone.push_back(number);
    }
  }
  if (any_level_is_short) give(level, options_.steps_ahead);
  for (const int32_t number : alone) {
    // What is granted is nobody else's: no more at a time than is soon used.
    give({number}, std::max(options_.steps_ahead, seats_.at(number).rows_ahead / kLeadParts));
  }
}

void Coordinator::on(int32_t number, const LinkState& link) {
  if (!seats_.contains(link.other) || link.other == number) return;
  const auto pair = std::minmax(number, link.other);
  const bool both_live = is_live(seats_.at(number)) && is_live(seats_.at(link.other));
  if (link.up) {
    if (no_links_.erase(pair) == 0 || !both_live) return;
    return log(fmt::format("islands '{}' and '{}' reach each other again", name(pair.first),
                           name(pair.second)));
  }
  if (!no_links_.insert(pair).second) return;
  is_relayed_.erase(pair);
  mistrust(pair);
  if (both_live) {  // Of who is lost it is known.
    log(fmt::format("islands '{}' and '{}' cannot reach each other: {}", name(number),
                    name(link.other), printable(link.reason)));
  }
  advance_all();
}

}  // namespace atl::swarm
