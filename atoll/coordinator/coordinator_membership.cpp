// Who is a member, and who is one no more.
#include <algorithm>
#include <utility>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"

namespace atl::swarm {

void Coordinator::announce_view() {
  view_ += 1;
  broadcast(View{header(), view_, peers(), revocations_});
}

void Coordinator::call(int32_t number) {
  const Peer& peer = book_.members().at(number);
  roster_.at(number).note_reach(std::nullopt);
  address_calls_.want({.number = number, .name = peer.name, .address = peer.address});
  make_calls();
}

void Coordinator::make_calls() {
  for (AddressCalls::Call& call : address_calls_.take_due(now_)) {
    actions_.emplace_back(std::move(call));
  }
}

Coordinator::Actions Coordinator::called(const Call& call, AddressCalls::Answer answer,
                                         const std::string& reason, Time now) {
  now_ = now;
  address_calls_.ended(call.name);
  if (finished_ || !roster_.contains(call.number)) return take();
  const bool is_still = book_.members().at(call.number).address == call.address;
  if (!is_still) return take();  // It is another process by now, which is called as well.
  const std::string fault(fault_of(answer));
  Seat& seat = roster_.at(call.number);
  seat.note_reach(fault);
  if (!fault.empty()) {  // The status, which members may read, tells no more than they are told.
    log(IslandNotReached{.island = call.name, .address = printable(call.address), .reason = reason},
        /*of_membership=*/false);
  }
  send_to(seat, AddressTried{.header = header(), .address = call.address, .fault = fault});
  arrange_meetings();
  return take();
}

void Coordinator::put_away(int32_t number, const std::string& why, Time now) {
  Seat& seat = roster_.at(number);
  if (seat.state() == State::kLeft || seat.state() == State::kAway) return;
  if (seat.state() == State::kLeaving) return say_goodbye();
  seat.put_away(why, now);
  log(IslandLost{.island = name(number),
                 .reason = why,
                 .live = roster_.num_live(),
                 .members = std::ssize(roster_.seats()) - roster_.num_in(State::kLeft)});
  if (roster_.num_live() == 0) log(AllIslandsLost{});
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

void Coordinator::remove(int32_t number, const std::string& why) {
  log(IslandRemoved{.island = name(number), .reason = why});
  vacate(number, why);
}

void Coordinator::vacate(int32_t number, const std::string& why) {
  Seat& seat = roster_.at(number);
  if (seat.connection()) refuse(*seat.connection(), why);
  roster_.vacate(number);
  pace_->forget(number);
  links_.forget(number);
  meetings_.forget(number);
  rounds_.forget(number);  // Its rows are free: no commit may count them.
  record(Removed{number});
  announce_view();
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

void Coordinator::violate(int32_t number, const std::string& what) {
  const ProtocolBroken broken{.island = name(number), .what = what};
  log(broken);
  remove(number, broken.sentence());
}

void Coordinator::reinstate(int32_t number) {
  Seat& seat = roster_.at(number);
  Reinstated reinstated = pace_->reinstated(seat, book_, roster_, rounds_);
  reinstated.header = header();
  seat.take_part(reinstated.first_round, now_);
  log(IslandCaughtUp{.island = name(number),
                     .round = std::max(reinstated.first_round, book_.last_round() + 1)});
  send_to(seat, reinstated);
  say_due(seat);
  gathering_.end();
  note_membership();
  advance_all();
  seat_guests(now_);
}

void Coordinator::on(int32_t number, const CaughtUp& caught_up) {
  roster_.at(number).note_caught_up(caught_up.num_commits);
  look_whether_level(number);
  if (!finished_) say_goodbye();
}

void Coordinator::look_whether_level(int32_t number) {
  const Seat& seat = roster_.at(number);
  if (seat.state() == State::kBehind && seat.is_level(book_.num_commits())) reinstate(number);
}

/// Newcomers are waited for at once where there are too few others.
void Coordinator::hurry_newcomers() {
  const int64_t next = book_.last_round() + 1;
  if (std::ssize(roster_.expected(next)) >= quorum_.least(book_)) return;
  for (const int32_t number : roster_.in(State::kActive)) {
    Seat& seat = roster_.at(number);
    if (seat.first_round() <= next) continue;
    seat.wait_from(0);
    send_to(seat, Reinstated{.header = header(), .first_round = 0});
  }
}

void Coordinator::note_membership() {
  hurry_newcomers();
  const bool is_over = (roster_.any_in(State::kLeaving) || roster_.any_in(State::kLeft)) &&
                       (roster_.num_live() == 0 || pace_->is_stopping() || is_at_end());
  const bool are_few = roster_.num_live() < quorum_.least(book_) && !is_over;
  if (const auto news = quorum_.note(roster_.num_live(), are_few)) log(*news);
}

/// Those who leave stay until nobody lacks what they hold, for a while.
void Coordinator::say_goodbye() {
  const bool any_lacks = std::ranges::any_of(roster_.seats(), [&](const auto& entry) {
    return entry.second.is_here() && entry.second.lacks_any(book_.num_commits());
  });
  bool any = false;
  bool any_leaves = false;
  for (const int32_t number : roster_.in(State::kLeaving)) {
    Seat& seat = roster_.at(number);
    const bool waits =
        any_lacks && seat.connection() && now_ - seat.away_since() < options_.leave_patience;
    any_leaves = any_leaves || waits;
    if (waits) continue;
    record(Left{number});
    has_anyone_left_ = true;
    send_to(seat, Goodbye{header()});
    seat.leave_for_good();
    rounds_.forget(number);
    links_.forget(number);
    meetings_.forget(number);
    any = true;
  }
  if (any) announce_view();
  if (any) advance_all();
  if (finished_) return;
  if (!any_leaves) finish_if_all_left(/*has_just_left=*/any);
}

/// Its last step is committed, or it was asked to stop; or nobody said how many steps it has.
bool Coordinator::is_complete() const {
  return pace_->is_stopping() || options_.steps == 0 || is_at_end();
}

/// Before its end a run waits for those who are away, though others have left it for good. It is
/// over then by the leave of the last one alone, not because somebody was removed.
void Coordinator::finish_if_all_left(bool has_just_left) {
  if (roster_.num_live() > 0) return;
  const bool may_go_on =
      roster_.any_in(State::kAway) || roster_.any_in(State::kBehind) || !guests_.empty();
  if (has_anyone_left_ && (is_complete() || (has_just_left && !may_go_on))) {
    for (const auto& [number, seat] : roster_.seats()) {
      if (seat.state() == State::kBehind) {
        send_to(seat,
                RunEnded{header(),
                         "the run was over before this island had its state: " + outcome().sentence,
                         is_at_end()});
      }
    }
    for (const auto& [connection, guest] : guests_.all()) {
      send(connection, RunEnded{header(), outcome().sentence, is_at_end()});
    }
    return finish({});
  }
  // Nobody is left who holds the state, but who lost it only by being alone.
  for (const auto& [number, seat] : roster_.seats()) {
    if (seat.state() == State::kBehind && seat.is_level(book_.num_commits())) {
      return reinstate(number);
    }
  }
  gather(now_);
}

}  // namespace atl::swarm
