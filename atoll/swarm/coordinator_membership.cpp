// Who becomes a member, when, and who is one no more.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

constexpr size_t kMaxAddressBytes = 256;
constexpr size_t kMaxGuests = 1024;

bool holds_training(const std::optional<Ready>& ready) {
  return ready && !ready->checkpoints.empty() && ready->checkpoints.rbegin()->first > 0;
}

}  // namespace

void Coordinator::admit(Connection connection, const Hello& hello, Time now) {
  const std::string objection = objection_to(hello);
  if (!objection.empty()) {
    log(fmt::format("island '{}' was refused: {}", printable(hello.name), objection));
    return refuse(connection, objection);
  }
  strangers_.erase(connection);
  guests_[connection] = {.hello = hello, .heard = now};
  log(fmt::format("island '{}' came from {}", hello.name, printable(hello.address)));
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
  const bool is_member = std::ranges::any_of(seats_, [&](const auto& entry) {
    const Seat& seat = entry.second;
    const bool is_heard = seat.state == State::kActive || seat.state == State::kBehind;
    return seat.connection && is_heard && name(entry.first) == hello.name;
  });
  if (is_guest(hello.name) || is_member) {
    return fmt::format("name: an island named '{}' takes part already; choose another", hello.name);
  }
  if (guests_.size() >= kMaxGuests) return "too many islands want to join at once";
  return {};
}

std::string Coordinator::objection_to(const Ready& ready) const {
  if (ready.checkpoints.empty()) return "checkpoints: it has no state to start from";
  if (facts_.empty()) return {};
  std::set<std::string> fields;
  for (const auto& [field, value] : facts_) fields.insert(field);
  for (const auto& [field, value] : ready.facts) fields.insert(field);
  for (const std::string& field : fields) {
    const auto theirs = facts_.find(field);
    const auto own = ready.facts.find(field);
    const std::string value = theirs == facts_.end() ? "none" : theirs->second;
    const std::string ours = own == ready.facts.end() ? "none" : own->second;
    if (value != ours) {
      return fmt::format("{}: the run has {}, this island {}", printable(field), printable(value),
                         printable(ours));
    }
  }
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
  const State state = seats_.at(resume.number).state;
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

void Coordinator::resume(Connection connection, const Resume& resume, Time now) {
  if (const std::string objection = objection_to(resume); !objection.empty()) {
    log(fmt::format("island '{}' was refused: {}", printable(resume.name), objection));
    return refuse(connection, objection);
  }
  strangers_.erase(connection);
  Seat& seat = seats_.at(resume.number);
  if (seat.connection) {  // Its old one, whose end was not heard of yet.
    actions_.emplace_back(Close{*seat.connection});
    numbers_.erase(*seat.connection);
    if (seat.state == State::kActive) put_away(resume.number, "it has come back", now);
  }
  seat.connection = connection;
  numbers_[connection] = resume.number;
  // It says again whom it cannot reach.
  std::erase_if(no_links_, [&](const auto& pair) {
    return pair.first == resume.number || pair.second == resume.number;
  });
  // It has let go of what it exchanged, but for what it had prepared.
  for (auto& [round, state] : rounds_) {
    const bool is_open = std::ranges::find(state.members, resume.number) != state.members.end();
    if (is_open && !state.prepared.contains(resume.number)) state.members.push_back(kNobody);
  }
  seat.suspicion.heard(now);
  const bool goes_on = seat.state == State::kReturning && resume.first_round >= 0;
  seat.state = goes_on ? State::kActive : State::kBehind;
  seat.is_new = resume.first_round < 0;
  seat.first_round = std::max<int64_t>(resume.first_round, 0);
  log(fmt::format("island '{}' is back", resume.name));
  send(connection,
       Resumed{header(), view_, peers(), book_.leases().behind(resume.number, resume.num_leased)});
  for (const Committed& committed : book_.history()) {
    if (committed.index >= resume.num_commits) send(connection, message_of(committed));
  }
  if (goes_on) say_due(seat);
  note_membership();
  advance_all();
  seat_guests(now);
}

/// Begins the run with `replicas` islands, or begins it again when nobody holds its state any more:
/// then with those who are there when the others had their time to come back.
void Coordinator::gather(Time now) {
  const auto num_ready = std::ranges::count_if(
      guests_, [](const auto& entry) { return entry.second.ready.has_value(); });
  if (!book_.has_begun()) {
    if (num_ready >= options_.replicas) return start_run(now);
    return log(fmt::format("{} of {} islands are here", num_ready, options_.replicas));
  }
  std::vector<int32_t> behind;
  for (const auto& [number, seat] : seats_) {
    if (seat.state == State::kBehind) behind.push_back(number);
  }
  if (num_live() > 0 || (num_ready == 0 && behind.empty())) return gather_until_.reset();
  const bool any_may_return = std::ranges::any_of(seats_, [&](const auto& entry) {
    return entry.second.state == State::kAway && !is_guest(name(entry.first));
  });
  const bool all_here = num_ready >= options_.replicas && behind.empty() && !any_may_return;
  if (!all_here) {
    if (!gather_until_) gather_until_ = now + 2 * options_.return_grace;
    if (now < *gather_until_) return;
    if (!behind.empty()) gather_until_ = now + 2 * options_.return_grace;
    for (const int32_t number : behind) {
      if (seats_.contains(number)) {
        remove(number, "the islands that held the run's state are gone: join again");
      }
    }
    if (!behind.empty() || num_ready < options_.min_replicas) return;
    // The others may still come, with what they have on disk: for that there is no deadline.
    if (book_.last_step() > 0 && std::ranges::none_of(guests_, [](const auto& entry) {
          return holds_training(entry.second.ready);
        })) {
      log(
          fmt::format("nobody who is here holds any of the {} steps that the run has had: it waits "
                      "for islands that do",
                      book_.last_step()));
      gather_until_ = now + 2 * options_.return_grace;
      return;
    }
  }
  gather_until_.reset();
  start_run(now);
}

bool Coordinator::is_guest(const std::string& name) const {
  return std::ranges::any_of(guests_,
                             [&](const auto& entry) { return entry.second.hello.name == name; });
}

void Coordinator::start_run(Time now) {
  std::vector<std::pair<std::string, Connection>> ready;
  std::vector<std::map<int64_t, std::string>> checkpoints;
  const bool is_trained = std::ranges::any_of(
      guests_, [](const auto& entry) { return holds_training(entry.second.ready); });
  for (const auto& [connection, guest] : guests_) {
    // Who holds nothing must not take the others back to the beginning: it joins them later.
    if (!guest.ready || (is_trained && !holds_training(guest.ready))) continue;
    ready.emplace_back(guest.hello.name, connection);
    checkpoints.push_back(guest.ready->checkpoints);
  }
  std::ranges::sort(ready);
  const auto step = newest_common_checkpoint(checkpoints);
  if (!step) {
    std::string held;
    for (const auto& [name, connection] : ready) {
      const auto& [newest, digest] = *guests_.at(connection).ready->checkpoints.rbegin();
      held += fmt::format("{}'{}' step {} ({})", held.empty() ? "" : ", ", name, newest,
                          printable(digest.substr(0, 12)));
    }
    return fail("checkpoints: the islands have none in common to start from; the newest are " +
                held + "; start with run directories of one run, or empty ones");
  }
  if (book_.has_begun() && book_.last_step() > *step) {
    log(fmt::format("nobody holds what was committed after step {}: steps {} to {} are void", *step,
                    *step + 1, book_.last_step()));
  }
  for (const auto& [number, seat] : seats_) {  // They are away; what they hold is void.
    if (!seat.connection) continue;
    const Connection connection = *seat.connection;
    refuse(connection, "the run has begun anew: join again");
  }
  rounds_.clear();
  seats_.clear();
  no_links_.clear();
  due_.reset();
  highest_begun_ = -1;
  record(RunBegan{options_.run, *step, options_.replicas, facts_, options_.config});
  std::vector<int32_t> numbers;
  std::vector<std::string> names;
  for (const auto& [name, connection] : ready) {
    numbers.push_back(seat(connection, now));
    seats_.at(numbers.back()).caught_up = book_.num_commits();
    names.push_back(name);
  }
  num_begun_with_ = std::ssize(numbers);
  const auto grants = record(Granted{numbers, 2 * options_.steps_ahead});
  view_ += 1;
  log(fmt::format("the run begins at step {} with {}", *step, fmt::join(names, ", ")));
  for (const int32_t number : numbers) {
    seats_.at(number).state = State::kActive;
    seats_.at(number).is_new = false;
    Start start = start_of(number, /*joins=*/false);
    start.units = grants.at(number);
    send_to(seats_.at(number), std::move(start));
  }
}

/// Gives the guest of that connection the next number.
int32_t Coordinator::seat(Connection connection, Time now) {
  const int32_t number = book_.next_number();
  const Hello hello = std::move(guests_.extract(connection).mapped().hello);
  record(Admitted{{number, hello.name, hello.address}});
  SuspicionOptions suspicion{.most = options_.silence_timeout};
  suspicion.least = std::min(suspicion.least, suspicion.most);
  seats_.emplace(number,
                 Seat{.connection = connection, .suspicion = {suspicion, now}, .heard = now});
  numbers_[connection] = number;
  return number;
}

/// Who is ready joins the run that is under way.
void Coordinator::seat_guests(Time now) {
  // After the first period; if that cannot be completed without them, all begin again.
  if (is_first_period()) return begin_first_period_anew();
  const bool any_active = std::ranges::any_of(
      seats_, [](const auto& entry) { return entry.second.state == State::kActive; });
  if (!any_active) return;  // Who could give them the state?
  std::vector<Connection> ready;
  for (const auto& [connection, guest] : guests_) {
    if (guest.ready) ready.push_back(connection);
  }
  if (ready.empty()) return;
  for (const Connection connection : ready) {
    if (!guests_.contains(connection)) continue;  // A removal has let others in.
    const std::string name = guests_.at(connection).hello.name;
    std::vector<int32_t> before;  // What is left of its last time here.
    for (const auto& [number, peer] : book_.members()) {
      if (peer.name == name) before.push_back(number);
    }
    for (const int32_t number : before) remove(number, "it has come back without its state");
    if (finished_) return;
    if (!guests_.contains(connection)) continue;
    const int32_t number = seat(connection, now);
    const auto grants = record(Granted{{number}, 2 * options_.steps_ahead});
    Start start = start_of(number, /*joins=*/true);
    start.view += 1;
    start.units = grants.at(number);
    log(fmt::format("island '{}' joins at step {}", name, start.step));
    send(connection, std::move(start));
  }
  announce_view();
}

void Coordinator::begin_first_period_anew() {
  const bool any_ready = std::ranges::any_of(
      guests_, [](const auto& entry) { return entry.second.ready.has_value(); });
  if (!any_ready || num_live() >= least_replicas()) return;
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) numbers.push_back(number);
  for (const int32_t number : numbers) {
    if (finished_ || !seats_.contains(number)) return;
    remove(number, "the run's first rounds had too few islands: join again");
  }
}

Start Coordinator::start_of(int32_t number, bool joins) const {
  Start start{.header = header(),
              .view = view_,
              .number = number,
              .start_step = book_.start_step(),
              .step = book_.last_step(),
              .num_commits = book_.num_commits(),
              .joins = joins,
              .members = peers(),
              .num_replicas = book_.num_replicas(),
              .report_every = report_every()};
  if (joins) {
    for (const auto& [fragment, held] : book_.held()) start.held.push_back(held);
  }
  return start;
}

std::vector<Peer> Coordinator::peers() const {
  std::vector<Peer> peers;
  for (const auto& [number, peer] : book_.members()) {
    const auto found = seats_.find(number);
    if (found == seats_.end() || found->second.state != State::kLeft) peers.push_back(peer);
  }
  return peers;
}

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
  log(fmt::format("island '{}' was lost: {}; {} of {} islands go on", name(number), why, num_live(),
                  seats_.size()));
  if (num_live() == 0) log("no island is left; waiting for islands to come back");
  note_membership();
  advance_all();
  if (!finished_) say_goodbye();
}

void Coordinator::remove(int32_t number, const std::string& why) {
  Seat& seat = seats_.at(number);
  log(fmt::format("island '{}' is no member any more: {}", name(number), why));
  if (seat.connection) {
    const Connection connection = *seat.connection;
    refuse(connection, why);
  }
  seats_.erase(number);
  std::erase_if(no_links_,
                [&](const auto& pair) { return pair.first == number || pair.second == number; });
  forget_rounds_of(number);
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
  log(fmt::format("island '{}' broke the protocol: it {}", name(number), what));
  remove(number, fmt::format("island '{}' broke the protocol: it {}", name(number), what));
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
  log(fmt::format("island '{}' has caught up: it takes part from round {}", name(number),
                  std::max(seat.first_round, book_.last_round() + 1)));
  send_to(seat, Reinstated{header(), seat.first_round, waits || is_elastic() ? 0 : step});
  say_due(seat);
  gather_until_.reset();
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
  const bool any_has_left = std::ranges::any_of(seats_, [](const auto& entry) {
    return entry.second.state == State::kLeaving || entry.second.state == State::kLeft;
  });
  const bool is_over = num_live() == 0 && any_has_left;
  const bool few = num_live() < least_replicas() && !is_over;
  if (few == waits_for_more_) return;
  waits_for_more_ = few;
  log(few ? fmt::format("WARNING: {} islands are here and swarm.min_replicas is {}: rounds wait "
                        "until more have come",
                        num_live(), options_.min_replicas)
          : fmt::format("{} islands are here: rounds go on", num_live()));
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
    send_to(seat, Goodbye{header()});
    seat.state = State::kLeft;
    forget_rounds_of(number);
    any = true;
  }
  if (any) announce_view();
  if (any) advance_all();
  if (finished_) return;
  if (!any_leaves) finish_if_all_left();
}

void Coordinator::finish_if_all_left() {
  const bool any_left = std::ranges::any_of(
      seats_, [](const auto& entry) { return entry.second.state == State::kLeft; });
  if (num_live() > 0) return;
  if (any_left) {
    for (const auto& [number, seat] : seats_) {
      if (seat.state == State::kBehind) {
        send_to(seat, RunEnded{header(), "the run was over before this island had its state"});
      }
    }
    for (const auto& [connection, guest] : guests_) {
      send(connection, RunEnded{header(), "the run is over"});
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
