#include "atoll/coordinator/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {

namespace {
constexpr Duration kOwnPause = std::chrono::milliseconds(300);  // That this process has slept.
constexpr size_t kMaxStrangers = 256;  // Each may hold one unfinished frame.
}  // namespace

SuspicionOptions CoordinatorOptions::suspicion() const {
  SuspicionOptions out{.most = silence_timeout};
  // Where nobody can come back, a false alarm is an island lost.
  if (!takes_newcomers) out.least = std::chrono::seconds(10);
  out.least = std::min(out.least, out.most);
  return out;
}

Coordinator::Coordinator(CoordinatorOptions options, Book book, Time now)
    : options_(std::move(options)),
      book_(std::move(book)),
      guests_(book_.facts()),
      gathering_(options_),
      roster_(options_.suspicion(), now),
      quorum_(options_),
      pace_(make_pace(options_)),
      meetings_(options_.circuit_secret),
      now_(now),
      next_alive_(now + options_.alive_interval),
      events_(now) {
  for (const auto& [number, peer] : book_.members()) {
    const bool has_left = book_.left().contains(number);
    roster_.restore(number, has_left ? State::kLeft : State::kReturning, now);
  }
  quorum_.begin(std::ssize(roster_.seats()));
}

Coordinator::Actions Coordinator::begin() {
  record(TermBegan{std::max(book_.term() + 1, options_.least_term)});
  // A run that all had left was stopped, or is complete: who comes now begins it again.
  if (roster_.num_in(State::kLeft) == std::ssize(roster_.seats())) {
    for (const int32_t number : roster_.numbers()) record(Removed{number});
    roster_.clear();
  }
  if (!roster_.empty()) {
    std::vector<std::string> names;
    for (const int32_t number : roster_.in(State::kReturning)) names.push_back(name(number));
    log(RunContinued{.run = options_.run,
                     .term = book_.term(),
                     .round = book_.last_round(),
                     .step = book_.last_step(),
                     .islands = names});
  }
  return take();
}

Header Coordinator::header(int64_t round, int32_t attempt) const {
  return {.run = options_.run, .term = book_.term(), .round = round, .attempt = attempt};
}

Book::Grants Coordinator::record(Record record) {
  Book::Grants grants = book_.apply(record);
  actions_.emplace_back(Persist{std::move(record)});
  return grants;
}

void Coordinator::send(Connection to, Message message) {
  actions_.emplace_back(Send{to, std::move(message)});
}

void Coordinator::send_to(const Seat& seat, Message message) {
  const auto connection = seat.connection();
  if (connection && seat.state() != State::kLeft) send(*connection, std::move(message));
}

void Coordinator::log(Event event, bool of_membership) {
  if (of_membership) events_.add(event, now_);
  actions_.emplace_back(Log{std::move(event)});
}

void Coordinator::broadcast(const Message& message) {
  for (const auto& [number, seat] : roster_.seats()) send_to(seat, message);
}

Coordinator::Actions Coordinator::take() { return std::exchange(actions_, {}); }

void Coordinator::refuse(Connection connection, const std::string& reason) {
  send(connection, Refused{header(), reason});
  actions_.emplace_back(Close{connection});
  strangers_.erase(connection);
  guests_.erase(connection);
  roster_.disconnect(connection);
}

void Coordinator::finish(Result<void> result) {
  for (const auto& [connection, when] : strangers_) actions_.emplace_back(Close{connection});
  for (const auto& [connection, guest] : guests_.all()) actions_.emplace_back(Close{connection});
  for (const Connection connection : roster_.connections()) {
    actions_.emplace_back(Close{connection});
  }
  for (const Connection relay : meetings_.relays()) {
    if (result) send(relay, RunEnded{header(), outcome().sentence, is_at_end()});
    actions_.emplace_back(Close{relay});
  }
  finished_ = true;
  log(result ? outcome() : RunFailed{result.error().message});
  actions_.emplace_back(Finished{std::move(result)});
}

Event Coordinator::outcome() const {
  if (!book_.has_begun()) return RunNotBegun{};
  if (is_at_end() || options_.steps == 0) return RunOver{book_.last_step()};
  return RunStopped{.step = book_.last_step(), .steps = options_.steps};
}

void Coordinator::fail(const std::string& reason) {
  if (finished_) return;
  std::string sentence = reason;
  if (!roster_.empty()) {
    sentence += book_.num_commits() == 0 ? std::string("; no round was committed")
                                         : fmt::format("; the last committed round is {} (step {})",
                                                       book_.last_round(), book_.last_step());
    sentence +=
        "; to resume, start the coordinator and all islands again with the same run directories";
  }
  broadcast(RunEnded{header(), sentence});
  for (const auto& [connection, guest] : guests_.all())
    send(connection, RunEnded{header(), sentence});
  for (const Connection relay : meetings_.relays()) send(relay, RunEnded{header(), sentence});
  finish(failure(sentence));
}

Coordinator::Actions Coordinator::opened(Connection connection, Time now) {
  now_ = now;
  if (finished_ || strangers_.size() >= kMaxStrangers) {
    actions_.emplace_back(Close{connection});
  } else {
    strangers_[connection] = now;
  }
  return take();
}

Coordinator::Actions Coordinator::received(Connection connection, const Message& message,
                                           Time now) {
  now_ = now;
  if (finished_) return take();
  if (strangers_.contains(connection)) {
    greet(connection, message, now);
  } else if (guests_.contains(connection)) {
    on_guest(connection, message, now);
  } else if (const auto number = roster_.number_of(connection)) {
    on_member(*number, message, now);
  } else if (meetings_.is_relay(connection)) {
    refuse(connection, fmt::format("a relay says no {}", kind_name(message)));
  }
  return take();
}

Coordinator::Actions Coordinator::garbled(Connection connection, const std::string& reason,
                                          Time now) {
  now_ = now;
  if (finished_) return take();
  if (const auto number = roster_.number_of(connection)) {
    violate(*number, "sent what is no message: " + reason);
  } else if (strangers_.contains(connection) || guests_.contains(connection)) {
    log(StrangerRefused{reason}, /*of_membership=*/false);
    refuse(connection, reason);
  } else if (meetings_.is_relay(connection)) {
    refuse(connection, reason);
  }
  return take();
}

void Coordinator::greet(Connection from, const Message& message, Time now) {
  if (const auto* hello = std::get_if<Hello>(&message)) return admit(from, *hello, now);
  if (const auto* back = std::get_if<Resume>(&message)) return resume(from, *back, now);
  if (const auto* relay = std::get_if<RelayHello>(&message)) return take_relay(from, *relay);
  refuse(from, "an island must say Hello first");
}

void Coordinator::on_guest(Connection from, const Message& message, Time now) {
  const std::string name = guests_.at(from).hello.name;
  guests_.hear(from, now);
  if (const auto* ready = std::get_if<Ready>(&message)) {
    const std::string objection = guests_.objection_to(from, *ready);
    if (!objection.empty()) {
      refuse(from, objection);
      return log(IslandRefused{.island = name, .reason = objection});
    }
    guests_.make_ready(from, *ready);
    log(IslandReady{name});
    // A member of that name was a process that is no more.
    for (const int32_t number : roster_.in(State::kReturning)) {
      if (this->name(number) != name) continue;
      put_away(number, "it has begun anew", now);
      break;
    }
    if (finished_ || !guests_.contains(from)) return;
    return roster_.num_live() > 0 ? seat_guests(now) : finish_if_all_left(/*has_just_left=*/false);
  }
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (std::holds_alternative<Leave>(message)) {
    log(GuestLeft{name});
    send(from, Goodbye{header()});
    actions_.emplace_back(Close{from});
    guests_.erase(from);
    return;
  }
  if (const auto* trouble = std::get_if<Trouble>(&message)) {
    log(GuestFailed{.island = name, .reason = printable(trouble->reason)});
    return refuse(from, printable(trouble->reason));
  }
  if (std::holds_alternative<StopRequest>(message) && book_.has_begun()) {
    return refuse(from, "it asked to stop before it was a member");
  }
  if (std::holds_alternative<StopRequest>(message)) {
    return fail(fmt::format("island '{}' asked to stop before the run began", name));
  }
  refuse(from, fmt::format("a {} out of place", kind_name(message)));
}

void Coordinator::on_member(int32_t number, const Message& message, Time now) {
  Seat& seat = roster_.at(number);
  if (seat.state() == State::kLeaving || seat.state() == State::kLeft) return;
  const Header& said = std::visit([](const auto& m) -> const Header& { return m.header; }, message);
  if (said.run != options_.run || said.term > book_.term()) {
    return violate(number, fmt::format("spoke of run '{}', term {}; this is run '{}', term {}",
                                       printable(said.run), said.term, options_.run, book_.term()));
  }
  if (said.term < book_.term()) return;  // It has not heard of this one yet: no sign of life.
  if (seat.hear(now)) log(IslandBack{name(number)});
  std::visit([&](const auto& m) { on(number, m); }, message);
}

Coordinator::Actions Coordinator::lost(Connection connection, const std::string& reason, Time now) {
  now_ = now;
  strangers_.erase(connection);
  if (guests_.contains(connection)) {
    const std::string name = guests_.take(connection).name;
    if (!finished_) log(GuestLost{.island = name, .reason = reason});
    return take();
  }
  if (finished_) return take();
  if (const auto relay = meetings_.relay_went(connection)) {
    log(RelayLost{.relay = *relay, .reason = reason});
  }
  if (const auto number = roster_.disconnect(connection)) put_away(*number, reason, now);
  return take();
}

Coordinator::Actions Coordinator::request_stop(Time now) {
  now_ = now;
  if (finished_ || pace_->is_stopping()) return take();
  pace_->stop(book_, rounds_);
  if (roster_.num_live() > 0) {
    log(StopRequested{});
  } else if (roster_.empty()) {  // Nothing is under way; it may have been a directory alone.
    for (const auto& [connection, guest] : guests_.all()) {
      send(connection, RunEnded{header(), outcome().sentence});
    }
    finish({});
  } else {
    fail("the run was stopped while no island trained");
  }
  return take();
}

Coordinator::Actions Coordinator::tell_revocations(Bytes signed_list, Time now) {
  now_ = now;
  revocations_ = std::move(signed_list);
  if (finished_) return take();
  announce_view();
  for (const Connection relay : meetings_.relays()) {
    send(relay, View{header(), view_, {}, revocations_});
  }
  return take();
}

Coordinator::Actions Coordinator::end(const std::string& reason) {
  fail(reason);
  return take();
}

Coordinator::Actions Coordinator::tick(Time now) {
  now_ = now;
  if (finished_ || now < next_alive_) return take();
  if (now - next_alive_ > kOwnPause) {  // Who was silent? This process.
    roster_.forgive(now);
    guests_.forgive(now);
  }
  next_alive_ = now + options_.alive_interval;
  std::vector<Connection> silent;
  for (const auto& [connection, since] : strangers_) {
    if (now - since > options_.hello_timeout) silent.push_back(connection);
  }
  for (const Connection connection : silent) refuse(connection, "no Hello in time");
  for (const Connection connection : guests_.silent(now, options_.silence_timeout)) {
    refuse(connection, "nothing was heard for long");
  }
  look_for_silence(now);
  if (!finished_) look_for_idleness();
  if (!finished_ && roster_.any_in(State::kLeaving)) say_goodbye();
  if (finished_) return take();
  if (gathering_.is_due(now)) gather(now);
  // One who is lost in the first period may be one too many, and a guest may have waited for one
  // who was expected back.
  if (!finished_ && roster_.num_live() > 0) seat_guests(now);
  call_round();
  make_calls();
  arrange_meetings();
  if (pace_->has_graces() || links_.any_broken() || meetings_.any_wanted()) advance_all();
  if (finished_) return take();
  const auto quiet =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - roster_.last_moved());
  const Alive alive{header(), static_cast<uint64_t>(quiet.count()), why_waits()};
  broadcast(alive);
  for (const auto& [connection, guest] : guests_.all()) send(connection, alive);
  return take();
}

void Coordinator::look_for_silence(Time now) {
  for (const int32_t number : roster_.numbers()) {
    if (!roster_.contains(number)) continue;
    const Seat& seat = roster_.at(number);
    const Duration away_for = now - seat.away_since();
    if (seat.is_silent(now)) {
      put_away(number, fmt::format("no word from it for {:.1f} s", seconds(seat.patience())), now);
    } else if (seat.state() == State::kReturning && away_for >= options_.return_grace) {
      put_away(number, "it did not come back to this coordinator in time", now);
    } else if (seat.state() == State::kAway && away_for > options_.removal_timeout) {
      remove(number, "it was away for too long");
    }
    if (finished_) return;
  }
}

void Coordinator::look_for_idleness() {
  std::map<int32_t, int64_t> idle;  // And the round.
  for (const auto& [round_number, round] : rounds_.all()) {
    if (round.begun().empty()) continue;
    for (const int32_t number : roster_.expected(round_number)) {
      const Seat& seat = roster_.at(number);
      if (seat.state() != State::kActive || round.has_begun(number)) continue;
      const Time since = pace_->idle_since(seat, round);
      if (now_ - since > options_.round_timeout) idle.emplace(number, round_number);
    }
  }
  for (const auto& [number, round_number] : idle) {
    if (finished_ || !roster_.contains(number)) continue;
    remove(number, fmt::format("it has not begun round {} and took no step for {:.0f} s "
                               "(swarm.round_timeout)",
                               round_number, seconds(options_.round_timeout)));
  }
}

Time Coordinator::next_deadline() const { return finished_ ? Time::max() : next_alive_; }

const std::string& Coordinator::name(int32_t number) const {
  return book_.members().at(number).name;
}

int64_t Coordinator::least_for_round() const {
  return pace_->is_stopping() ? quorum_.least_when_stopping(book_) : quorum_.least(book_);
}

void Coordinator::on(int32_t number, const Heartbeat& heartbeat) {
  roster_.report(number, heartbeat, now_);
  if (!book_.leases().is_possible(number, heartbeat.num_trained)) {
    return violate(number, "trained on rows that it does not have");
  }
  pace_->note_trained(number, roster_.at(number), book_, now_);
  grant_rows();
  look_whether_level(number);
  call_round();
}

void Coordinator::on(int32_t number, const StopRequest& /*request*/) {
  if (pace_->is_stopping()) return;
  pace_->stop(book_, rounds_);
  log(StopRequested{name(number)});
}

void Coordinator::on(int32_t number, const Leave& /*leave*/) {
  roster_.at(number).leave(now_);
  log(IslandLeft{name(number)});
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

void Coordinator::on(int32_t number, const Trouble& trouble) {
  const bool accuses = roster_.contains(trouble.culprit) && trouble.culprit != number;
  log(IslandInTrouble{.island = name(number), .reason = printable(trouble.reason)});
  if (accuses) {
    violate(trouble.culprit,
            fmt::format("did so to '{}': {}", name(number), printable(trouble.reason)));
  } else {
    remove(number, "it cannot go on: " + printable(trouble.reason));
  }
}

template <typename Other>
void Coordinator::on(int32_t number, const Other& other) {
  violate(number, "sent a " + kind_name(other) + ", which is not for a coordinator");
}

}  // namespace atl::swarm
