#include "atoll/swarm/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "atoll/swarm/rules.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {

namespace {
constexpr Duration kOwnPause = std::chrono::milliseconds(300);  // That this process has slept.
constexpr size_t kMaxStrangers = 256;  // Each may hold one unfinished frame.
constexpr size_t kMaxEvents = 100;     // In the status.
}  // namespace

SuspicionOptions CoordinatorOptions::suspicion() const {
  SuspicionOptions out{.most = silence_timeout};
  // Where nobody can come back, a false alarm is an island lost.
  if (!takes_newcomers) out.least = std::chrono::seconds(10);
  out.least = std::min(out.least, out.most);
  return out;
}

std::string program_version() { return ATOLL_VERSION; }

Coordinator::Coordinator(CoordinatorOptions options, Book book, Time now)
    : options_(std::move(options)),
      book_(std::move(book)),
      outliers_(options_.outlier_factor),
      facts_(book_.facts()),
      returning_until_(now + options_.return_grace),
      now_(now),
      last_moved_(now),
      next_alive_(now + options_.alive_interval),
      began_(now) {
  for (const auto& [number, peer] : book_.members()) {
    const bool has_left = book_.left().contains(number);
    seats_.emplace(number, Seat{.state = has_left ? State::kLeft : State::kReturning,
                                .suspicion = {options_.suspicion(), now},
                                .heard = now});
  }
  num_begun_with_ = std::ssize(seats_);
}

Coordinator::Actions Coordinator::begin() {
  record(TermBegan{std::max(book_.term() + 1, options_.least_term)});
  // A run that all had left was stopped, or is complete: who comes now begins it again.
  const bool all_left = std::ranges::all_of(
      seats_, [](const auto& entry) { return entry.second.state == State::kLeft; });
  if (all_left) {
    for (const auto& [number, seat] : std::exchange(seats_, {})) record(Removed{number});
  }
  if (!seats_.empty()) {
    std::vector<std::string> names;
    for (const auto& [number, seat] : seats_) {
      if (seat.state == State::kReturning) names.push_back(name(number));
    }
    log(fmt::format(
        "back in run '{}', term {}: round {} (step {}) was committed last; waits for {} to return",
        options_.run, book_.term(), book_.last_round(), book_.last_step(), fmt::join(names, ", ")));
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
  if (seat.connection && seat.state != State::kLeft) send(*seat.connection, std::move(message));
}

void Coordinator::log(std::string line, bool event) {
  if (event) events_.push_back({.time_s = seconds(now_ - began_), .line = line});
  if (events_.size() > kMaxEvents) events_.pop_front();
  actions_.emplace_back(Log{std::move(line)});
}

void Coordinator::broadcast(const Message& message) {
  for (const auto& [number, seat] : seats_) send_to(seat, message);
}

Coordinator::Actions Coordinator::take() { return std::exchange(actions_, {}); }

void Coordinator::refuse(Connection connection, const std::string& reason) {
  send(connection, Refused{header(), reason});
  actions_.emplace_back(Close{connection});
  strangers_.erase(connection);
  guests_.erase(connection);
  numbers_.erase(connection);
}

void Coordinator::finish(Result<void> result) {
  for (const auto& [connection, when] : strangers_) actions_.emplace_back(Close{connection});
  for (const auto& [connection, guest] : guests_) actions_.emplace_back(Close{connection});
  for (const auto& [connection, number] : numbers_) actions_.emplace_back(Close{connection});
  finished_ = true;
  log(result ? outcome() : "the run ended: " + result.error().message);
  actions_.emplace_back(Finished{std::move(result)});
}

std::string Coordinator::outcome() const {
  if (is_at_end() || options_.steps == 0) {
    return fmt::format("the run is over: step {} is committed", book_.last_step());
  }
  return fmt::format(
      "the run has stopped at step {} of {}; to go on with it, start its coordinator and islands "
      "again with the same run directories",
      book_.last_step(), options_.steps);
}

void Coordinator::fail(const std::string& reason) {
  if (finished_) return;
  std::string sentence = reason;
  if (!seats_.empty()) {
    sentence += book_.num_commits() == 0 ? std::string("; no round was committed")
                                         : fmt::format("; the last committed round is {} (step {})",
                                                       book_.last_round(), book_.last_step());
    sentence +=
        "; to resume, start the coordinator and all islands again with the same run directories";
  }
  broadcast(RunEnded{header(), sentence});
  for (const auto& [connection, guest] : guests_) send(connection, RunEnded{header(), sentence});
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
  } else if (const auto found = numbers_.find(connection); found != numbers_.end()) {
    on_member(found->second, message, now);
  }
  return take();
}

Coordinator::Actions Coordinator::garbled(Connection connection, const std::string& reason,
                                          Time now) {
  now_ = now;
  if (finished_) return take();
  if (const auto found = numbers_.find(connection); found != numbers_.end()) {
    violate(found->second, "sent what is no message: " + reason);
  } else if (strangers_.contains(connection) || guests_.contains(connection)) {
    log("a stranger was turned away: " + reason, /*event=*/false);
    refuse(connection, reason);
  }
  return take();
}

void Coordinator::greet(Connection from, const Message& message, Time now) {
  if (const auto* hello = std::get_if<Hello>(&message)) return admit(from, *hello, now);
  if (const auto* back = std::get_if<Resume>(&message)) return resume(from, *back, now);
  refuse(from, "an island must say Hello first");
}

void Coordinator::on_guest(Connection from, const Message& message, Time now) {
  Guest& guest = guests_.at(from);
  const std::string name = guest.hello.name;
  guest.heard = now;
  if (const auto* ready = std::get_if<Ready>(&message)) {
    std::string objection = guest.ready ? "it was ready twice" : objection_to(*ready);
    if (!objection.empty()) {
      refuse(from, objection);
      return log(fmt::format("island '{}' was refused: {}", name, objection));
    }
    guest.ready = *ready;
    log(fmt::format("island '{}' is ready", name));
    if (facts_.empty()) facts_ = ready->facts;
    // A member of that name was a process that is no more.
    for (const auto& [number, seat] : seats_) {
      if (seat.state != State::kReturning || this->name(number) != name) continue;
      put_away(number, "it has begun anew", now);
      break;
    }
    if (finished_ || !guests_.contains(from)) return;
    return num_live() > 0 ? seat_guests(now) : finish_if_all_left(/*has_just_left=*/false);
  }
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (std::holds_alternative<Leave>(message)) {
    log(fmt::format("island '{}' left before it was a member", name));
    send(from, Goodbye{header()});
    actions_.emplace_back(Close{from});
    guests_.erase(from);
    return;
  }
  if (const auto* trouble = std::get_if<Trouble>(&message)) {
    log(fmt::format("island '{}' cannot go on: {}", name, printable(trouble->reason)));
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
  Seat& seat = seats_.at(number);
  if (seat.state == State::kLeaving || seat.state == State::kLeft) return;
  const Header& said = std::visit([](const auto& m) -> const Header& { return m.header; }, message);
  if (said.run != options_.run || said.term > book_.term()) {
    return violate(number, fmt::format("spoke of run '{}', term {}; this is run '{}', term {}",
                                       printable(said.run), said.term, options_.run, book_.term()));
  }
  if (said.term < book_.term()) return;  // It has not heard of this one yet: no sign of life.
  seat.suspicion.heard(now);
  seat.heard = now;
  if (seat.state == State::kAway) {
    log(fmt::format("island '{}' is back", name(number)));
    seat.state = State::kBehind;
  }
  std::visit([&](const auto& m) { on(number, m); }, message);
}

Coordinator::Actions Coordinator::lost(Connection connection, const std::string& reason, Time now) {
  now_ = now;
  strangers_.erase(connection);
  if (const auto guest = guests_.find(connection); guest != guests_.end()) {
    const std::string name = guest->second.hello.name;
    guests_.erase(guest);
    if (!finished_)
      log(fmt::format("island '{}' was lost before it was a member: {}", name, reason));
    return take();
  }
  const auto found = numbers_.find(connection);
  if (found == numbers_.end() || finished_) return take();
  const int32_t number = found->second;
  numbers_.erase(found);
  seats_.at(number).connection.reset();
  put_away(number, reason, now);
  return take();
}

Coordinator::Actions Coordinator::request_stop(Time now) {
  now_ = now;
  if (finished_ || stop_requested_) return take();
  note_stop();
  if (num_live() > 0) {
    log("stopping after the next sync");
  } else {
    fail("the run was stopped while no island trained");
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
    for (auto& [number, seat] : seats_) {
      seat.suspicion.forgive(now);
      seat.trained = now;
    }
    for (auto& [connection, guest] : guests_) guest.heard = now;
  }
  next_alive_ = now + options_.alive_interval;
  std::vector<Connection> silent;
  for (const auto& [connection, since] : strangers_) {
    if (now - since > options_.hello_timeout) silent.push_back(connection);
  }
  for (const Connection connection : silent) refuse(connection, "no Hello in time");
  silent.clear();
  for (const auto& [connection, guest] : guests_) {
    if (now - guest.heard > options_.silence_timeout) silent.push_back(connection);
  }
  for (const Connection connection : silent) refuse(connection, "nothing was heard for long");
  look_for_silence(now);
  if (!finished_) look_for_idleness();
  if (!finished_ && any_is(State::kLeaving)) say_goodbye();
  if (finished_) return take();
  if (gather_until_ && now >= *gather_until_) gather(now);
  // One who is lost in the first period may be one too many, and a guest may have waited for one
  // who was expected back.
  if (!finished_ && num_live() > 0) seat_guests(now);
  if (is_elastic() && !finished_) {
    call_round();
    advance_all();  // A grace may be over.
    if (finished_) return take();
  }
  const auto quiet = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_moved_);
  const Alive alive{header(), static_cast<uint64_t>(quiet.count()), why_waits()};
  broadcast(alive);
  for (const auto& [connection, guest] : guests_) send(connection, alive);
  return take();
}

void Coordinator::look_for_silence(Time now) {
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) numbers.push_back(number);
  for (const int32_t number : numbers) {
    const auto found = seats_.find(number);
    if (found == seats_.end()) continue;
    const Seat& seat = found->second;
    const bool awaited = seat.state == State::kActive || seat.state == State::kBehind;
    if (awaited && now >= seat.suspicion.away_at()) {
      put_away(number,
               fmt::format("no word from it for {:.1f} s", seconds(seat.suspicion.patience())),
               now);
    } else if (seat.state == State::kReturning && now >= returning_until_) {
      put_away(number, "it did not come back to this coordinator in time", now);
    } else if (seat.state == State::kAway && now - seat.away_since > options_.removal_timeout) {
      remove(number, "it was away for too long");
    }
    if (finished_) return;
  }
}

void Coordinator::look_for_idleness() {
  std::map<int32_t, int64_t> idle;  // And the round.
  for (const auto& [round_number, round] : rounds_) {
    if (round.begun.empty()) continue;
    for (const int32_t number : expected(round_number)) {
      const Seat& seat = seats_.at(number);
      if (seat.state != State::kActive || round.begun.contains(number)) continue;
      // Elastic: rounds go on without it, each after a while.
      const Time since = is_elastic() ? seat.trained : std::max(seat.trained, round.waits);
      if (now_ - since > options_.round_timeout) idle.emplace(number, round_number);
    }
  }
  for (const auto& [number, round_number] : idle) {
    if (finished_ || !seats_.contains(number)) continue;
    remove(number, fmt::format("it has not begun round {} and took no step for {:.0f} s "
                               "(swarm.round_timeout)",
                               round_number, seconds(options_.round_timeout)));
  }
}

Time Coordinator::next_deadline() const { return finished_ ? Time::max() : next_alive_; }

const std::string& Coordinator::name(int32_t number) const {
  return book_.members().at(number).name;
}

bool Coordinator::is_first_period() const {
  return std::cmp_less(book_.held().size(), options_.num_fragments);
}

/// Others can join after the first period only: those who alone hold what the run begins with must
/// complete it, however few they are.
int64_t Coordinator::least_replicas() const {
  const int64_t least = std::max<int64_t>(options_.min_replicas, 1);
  return is_first_period() && num_begun_with_ > 0 ? std::min(least, num_begun_with_) : least;
}

int64_t Coordinator::least_for_round() const {
  return stop_requested_ && !options_.ends_together ? 1 : least_replicas();
}

bool Coordinator::is_live(const Seat& seat) const {
  return seat.state == State::kActive || seat.state == State::kReturning;
}

bool Coordinator::any_is(State state) const {
  return std::ranges::any_of(seats_,
                             [&](const auto& entry) { return entry.second.state == state; });
}

int64_t Coordinator::num_live() const {
  return std::ranges::count_if(seats_, [&](const auto& entry) { return is_live(entry.second); });
}

void Coordinator::on(int32_t number, const Heartbeat& heartbeat) {
  Seat& seat = seats_.at(number);
  if (heartbeat.moved != seat.progress.moved) last_moved_ = now_;
  const bool computes_again = heartbeat.step != seat.progress.step;
  if (heartbeat.num_trained > seat.num_trained || computes_again) seat.trained = now_;
  seat.progress = heartbeat;
  if (!book_.leases().is_possible(number, heartbeat.num_trained)) {
    return violate(number, "trained on rows that it does not have");
  }
  seat.num_trained = std::max(seat.num_trained, heartbeat.num_trained);
  seat.caught_up = std::max(seat.caught_up, heartbeat.caught_up);
  measure_speed(seat);
  grant_rows();
  look_whether_level(number);
  if (!finished_) call_round();
}

void Coordinator::on(int32_t number, const StopRequest& /*request*/) {
  if (stop_requested_) return;
  note_stop();
  log(fmt::format("island '{}' asked to stop: stopping after the next sync", name(number)));
}

void Coordinator::on(int32_t number, const Leave& /*leave*/) {
  Seat& seat = seats_.at(number);
  seat.state = State::kLeaving;
  seat.away_since = now_;
  log(fmt::format("island '{}' has left", name(number)));
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

void Coordinator::on(int32_t number, const Trouble& trouble) {
  const bool accuses = seats_.contains(trouble.culprit) && trouble.culprit != number;
  log(fmt::format("island '{}': {}", name(number), printable(trouble.reason)));
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
