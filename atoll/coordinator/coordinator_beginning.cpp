// How a run begins, or begins again, and how newcomers take their seats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

void Coordinator::gather(Time now) {
  const Gathering::Decision decision =
      gathering_.decide(book_, guests_, roster_, quorum_.least(book_), now);
  for (const int32_t number : decision.removed) {
    if (roster_.contains(number)) {
      remove(number, "the islands that held the run's state are gone: join again");
    }
  }
  if (decision.news) log(*decision.news);
  if (decision.begins && !take_back_guests()) start_run(now);
}

void Coordinator::start_run(Time now) {
  const auto beginning = gathering_.find_beginning(book_, guests_, quorum_.least(book_));
  if (!beginning) {
    return fail("checkpoints: the islands have none in common to start from; the newest are " +
                guests_.newest_checkpoints() +
                "; start with run directories of one run, or empty ones");
  }
  const int64_t step = beginning->step;
  if (book_.has_begun() && book_.last_step() > step) {
    log(StepsVoid{.step = step, .last = book_.last_step()});
  }
  for (const auto& [number, seat] : roster_.seats()) {  // They are away; what they hold is void.
    if (seat.connection()) refuse(*seat.connection(), "the run has begun anew: join again");
  }
  rounds_ = {};
  roster_.clear();
  links_ = {};
  meetings_.forget_members();
  record(RunBegan{options_.run, step, options_.replicas, guests_.facts(), options_.config});
  pace_->begin(book_);
  std::vector<int32_t> numbers;
  std::vector<std::string> names;
  for (const auto& [name, connection] : beginning->islands) {
    numbers.push_back(seat(connection, now));
    roster_.at(numbers.back()).note_caught_up(book_.num_commits());
    names.push_back(name);
  }
  quorum_.begin(std::ssize(numbers));
  gathering_.end();
  if (!options_.takes_newcomers) refuse_guests(step);
  const auto grants = record(Granted{numbers, 2 * options_.steps_ahead});
  view_ += 1;
  log(RunBegun{.step = step, .islands = names});
  for (const int32_t number : numbers) {
    roster_.at(number).take_part(0, now);
    roster_.at(number).contribute();
    Start start = start_of(number, /*joins=*/false);
    start.units = grants.at(number);
    send_to(roster_.at(number), std::move(start));
  }
  if (!revocations_.empty()) announce_view();
}

/// They cannot join later.
void Coordinator::refuse_guests(int64_t step) {
  for (const Connection connection : guests_.ready()) {
    refuse(connection,
           fmt::format("the run goes on from step {}, which island '{}' does not hold, and its "
                       "method takes no islands under way; the newest checkpoints: {}",
                       step, guests_.at(connection).hello.name, guests_.newest_checkpoints()));
  }
}

/// Gives the guest of that connection the next number.
int32_t Coordinator::seat(Connection connection, Time now) {
  const int32_t number = book_.next_number();
  const Hello hello = guests_.take(connection);
  record(Admitted{{number, hello.name, hello.address}});
  roster_.seat(number, connection, now);
  call(number);
  return number;
}

/// Who is ready joins the run that is under way.
void Coordinator::seat_guests(Time now) {
  const bool rounds_wait = roster_.num_live() < quorum_.least(book_);
  if (rounds_wait && !may_return().lacking.empty()) {
    // What those hold who are expected back is not known yet.
    if (roster_.any_in(State::kReturning) || take_back_guests()) return;
  }
  // After the first period; if that cannot be completed without them, all begin again.
  if (quorum_.is_first_period(book_)) return begin_first_period_anew();
  if (!roster_.any_in(State::kActive)) return;  // Who could give them the state?
  const std::vector<Connection> ready = guests_.ready();
  if (ready.empty()) return;
  for (const Connection connection : ready) {
    if (!guests_.contains(connection)) continue;  // A removal has let others in.
    const std::string name = guests_.at(connection).hello.name;
    std::vector<int32_t> before;  // What is left of its last time here.
    for (const auto& [number, peer] : book_.members()) {
      if (peer.name == name) before.push_back(number);
    }
    if (!before.empty()) log(IslandBack{.island = name, .is_anew = true});
    for (const int32_t number : before) vacate(number, "it has joined anew");
    if (finished_) return;
    if (!guests_.contains(connection)) continue;
    const int32_t number = seat(connection, now);
    const auto grants = record(Granted{{number}, 2 * options_.steps_ahead});
    Start start = start_of(number, /*joins=*/true);
    start.view += 1;
    start.units = grants.at(number);
    log(IslandJoins{.island = name, .step = start.step});
    send(connection, std::move(start));
  }
  announce_view();
}

void Coordinator::begin_first_period_anew() {
  if (guests_.num_ready() == 0 || is_at_end() || roster_.num_live() >= quorum_.least(book_)) return;
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : roster_.seats()) {
    numbers.push_back(number);
    if (seat.is_live()) gathering_.await(name(number));  // With what it holds.
  }
  for (const int32_t number : numbers) {
    if (finished_ || !roster_.contains(number)) return;
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
              .report_every = pace_->report_every(book_)};
  if (joins) {
    for (const auto& [fragment, held] : book_.held()) start.held.push_back(held);
  }
  return start;
}

std::vector<Peer> Coordinator::peers() const {
  std::vector<Peer> peers;
  for (const auto& [number, peer] : book_.members()) {
    const bool has_left = roster_.contains(number) && roster_.at(number).state() == State::kLeft;
    if (!has_left) peers.push_back(peer);
  }
  return peers;
}

}  // namespace atl::swarm
