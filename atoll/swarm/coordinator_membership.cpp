// Who is a member, and who is one no more.
#include <algorithm>
#include <utility>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/events.h"

namespace atl::swarm {

void Coordinator::announce_view() {
  view_ += 1;
  broadcast(View{header(), view_, peers()});
}

void Coordinator::put_away(int32_t number, const std::string& why, Time now) {
  Seat& seat = seats_.at(number);
  if (seat.state == State::kLeft || seat.state == State::kAway) return;
  if (seat.state == State::kLeaving) return say_goodbye();
  seat.state = State::kAway;
  seat.away_since = now;
  seat.reason = why;
  const auto num_left = std::ranges::count_if(
      seats_, [](const auto& entry) { return entry.second.state == State::kLeft; });
  log(IslandLost{.island = name(number),
                 .reason = why,
                 .live = num_live(),
                 .members = std::ssize(seats_) - num_left});
  if (num_live() == 0) log(AllIslandsLost{});
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

void Coordinator::remove(int32_t number, const std::string& why) {
  log(IslandRemoved{.island = name(number), .reason = why});
  vacate(number, why);
}

void Coordinator::vacate(int32_t number, const std::string& why) {
  Seat& seat = seats_.at(number);
  if (seat.connection) {
    const Connection connection = *seat.connection;
    refuse(connection, why);
  }
  seats_.erase(number);
  std::erase_if(no_links_, [&](const auto& pair) { return is_of(pair, number); });
  std::erase_if(mistrusted_, [&](const auto& entry) { return is_of(entry.first, number); });
  forget_rounds_of(number);
  outliers_.forget(number);
  record(Removed{number});
  announce_view();
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

/// Its rows are free: no commit may count them.
void Coordinator::forget_rounds_of(int32_t number) {
  for (auto& [round, state] : rounds_) {
    state.begun.erase(number);
    if (std::erase(state.members, number) == 0) continue;
    state.prepared.clear();
    state.members.push_back(kNobody);  // Another attempt is due.
  }
}

void Coordinator::violate(int32_t number, const std::string& what) {
  const ProtocolBroken broken{.island = name(number), .what = what};
  log(broken);
  remove(number, broken.sentence());
}

/// A newcomer counts after a full period; who was away goes on where the others are.
void Coordinator::reinstate(int32_t number) {
  Seat& seat = seats_.at(number);
  int64_t step = 0;
  for (const auto& [other, theirs] : seats_) {
    if (is_live(theirs)) step = std::max(step, theirs.progress.step);
  }
  // In elastic pace it counts as much as it has trained, and goes on from the last commit.
  const bool waits = seat.is_new && num_live() > 0 && !is_elastic();
  seat.first_round =
      waits ? std::max(highest_begun_, book_.last_round()) + 1 + options_.num_fragments : 0;
  seat.state = State::kActive;
  seat.trained = now_;
  log(IslandCaughtUp{.island = name(number),
                     .round = std::max(seat.first_round, book_.last_round() + 1)});
  send_to(seat, Reinstated{header(), seat.first_round, waits || is_elastic() ? 0 : step});
  say_due(seat);
  gather_until_.reset();
  gather_notice_.clear();
  note_membership();
  advance_all();
  seat_guests(now_);
}

void Coordinator::on(int32_t number, const CaughtUp& caught_up) {
  Seat& seat = seats_.at(number);
  seat.caught_up = std::max(seat.caught_up, caught_up.num_commits);
  look_whether_level(number);
  if (!finished_) say_goodbye();
}

void Coordinator::look_whether_level(int32_t number) {
  const Seat& seat = seats_.at(number);
  if (seat.state == State::kBehind && seat.caught_up == book_.num_commits()) reinstate(number);
}

/// Newcomers are waited for at once where there are too few others.
void Coordinator::hurry_newcomers() {
  const int64_t next = book_.last_round() + 1;
  const auto num_ready = std::ranges::count_if(seats_, [&](const auto& entry) {
    return is_live(entry.second) && entry.second.first_round <= next;
  });
  if (num_ready >= least_replicas()) return;
  for (auto& [number, seat] : seats_) {
    if (seat.state != State::kActive || seat.first_round <= next) continue;
    seat.first_round = 0;
    send_to(seat, Reinstated{.header = header(), .first_round = 0});
  }
}

void Coordinator::note_membership() {
  hurry_newcomers();
  const bool is_over = (any_is(State::kLeaving) || any_is(State::kLeft)) &&
                       (num_live() == 0 || stop_requested_ || is_at_end());
  const bool few = num_live() < least_replicas() && !is_over;
  if (few == waits_for_more_) return;
  waits_for_more_ = few;
  log(few ? Event(RoundsWait{.live = num_live(), .least = options_.min_replicas})
          : RoundsGoOn{.live = num_live(), .least = options_.min_replicas});
}

/// Those who leave stay until nobody lacks what they hold, for a while.
void Coordinator::say_goodbye() {
  const bool any_lacks = std::ranges::any_of(seats_, [&](const auto& entry) {
    const Seat& seat = entry.second;
    const bool may_ask = is_live(seat) || seat.state == State::kBehind;
    return may_ask && seat.caught_up < book_.num_commits();
  });
  bool any = false;
  bool any_leaves = false;
  for (auto& [number, seat] : seats_) {
    if (seat.state != State::kLeaving) continue;
    const bool waits =
        any_lacks && seat.connection && now_ - seat.away_since < options_.leave_patience;
    any_leaves = any_leaves || waits;
    if (waits) continue;
    record(Left{number});
    has_anyone_left_ = true;
    send_to(seat, Goodbye{header()});
    seat.state = State::kLeft;
    forget_rounds_of(number);
    any = true;
  }
  if (any) announce_view();
  if (any) advance_all();
  if (finished_) return;
  if (!any_leaves) finish_if_all_left(/*has_just_left=*/any);
}

/// Its last step is committed, or it was asked to stop; or nobody said how many steps it has.
bool Coordinator::is_complete() const {
  return stop_requested_ || options_.steps == 0 || is_at_end();
}

/// Before its end a run waits for those who are away, though others have left it for good. It is
/// over then by the leave of the last one alone, not because somebody was removed.
void Coordinator::finish_if_all_left(bool has_just_left) {
  if (num_live() > 0) return;
  const bool may_go_on = any_is(State::kAway) || any_is(State::kBehind) || !guests_.empty();
  if (has_anyone_left_ && (is_complete() || (has_just_left && !may_go_on))) {
    for (const auto& [number, seat] : seats_) {
      if (seat.state == State::kBehind) {
        send_to(seat,
                RunEnded{header(),
                         "the run was over before this island had its state: " + outcome().sentence,
                         is_at_end()});
      }
    }
    for (const auto& [connection, guest] : guests_) {
      send(connection, RunEnded{header(), outcome().sentence, is_at_end()});
    }
    return finish({});
  }
  // Nobody is left who holds the state, but who lost it only by being alone.
  for (const auto& [number, seat] : seats_) {
    if (seat.state == State::kBehind && seat.caught_up == book_.num_commits()) {
      return reinstate(number);
    }
  }
  gather(now_);
}

}  // namespace atl::swarm
