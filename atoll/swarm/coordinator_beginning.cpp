// How a run begins, or begins again, and how newcomers take their seats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

bool holds_training(const std::optional<Ready>& ready) {
  return ready && !ready->checkpoints.empty() && ready->checkpoints.rbegin()->first > 0;
}

}  // namespace

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
  const bool any_may_return =
      std::ranges::any_of(seats_,
                          [&](const auto& entry) {
                            const State state = entry.second.state;
                            return (state == State::kAway || state == State::kLeft) &&
                                   !is_ready(name(entry.first));
                          }) ||
      !std::ranges::all_of(awaited_, [&](const std::string& name) { return is_ready(name); });
  const bool all_here = num_ready >= options_.replicas && behind.empty() && !any_may_return;
  const auto beginning = find_beginning();
  const bool is_worth_waiting = !beginning || beginning->step < oldest_beginning();
  if (!all_here || (beginning && beginning->step > 0 && is_worth_waiting)) {
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
    if (is_worth_waiting) {
      const auto notice = fmt::format(
          "the run was at step {}, and what is here is not enough: {}; it waits for islands that "
          "hold more (to give those up, start the coordinator with another --run)",
          book_.last_step(), newest_checkpoints());
      if (std::exchange(gather_notice_, notice) != notice) log(notice);
      gather_until_ = now + 2 * options_.return_grace;
      return;
    }
  }
  gather_until_.reset();
  awaited_.clear();
  if (!take_back_guests()) start_run(now);
}

bool Coordinator::is_ready(const std::string& name) const {
  return std::ranges::any_of(guests_, [&](const auto& entry) {
    return entry.second.hello.name == name && entry.second.ready.has_value();
  });
}

bool Coordinator::is_guest(const std::string& name) const {
  return std::ranges::any_of(guests_,
                             [&](const auto& entry) { return entry.second.hello.name == name; });
}

/// Nobody is taken back to what another held long ago, or to the beginning by who holds nothing:
/// those join later. Where the method takes no newcomers, as many as can begin, at what they have
/// in common, unless that is too old.
std::optional<Coordinator::Beginning> Coordinator::find_beginning() const {
  std::vector<Checkpoints> held;
  const bool is_trained = std::ranges::any_of(
      guests_, [](const auto& entry) { return holds_training(entry.second.ready); });
  const auto counts = [&](const Guest& guest) {
    return guest.ready && (!is_trained || holds_training(guest.ready));
  };
  for (const auto& [connection, guest] : guests_) {
    if (counts(guest)) held.push_back(guest.ready->checkpoints);
  }
  const auto find = [&]() -> std::optional<Checkpoint> {
    if (!is_trained) return newest_common_checkpoint(held);
    // What is further than islands wait for each other is of another run.
    const int64_t committed = book_.has_begun() ? book_.last_step() : INT64_MAX;
    const int64_t last = book_.has_begun() ? committed + options_.most_ahead : INT64_MAX;
    if (options_.takes_newcomers) return newest_checkpoint(held, committed, last);
    if (book_.has_begun()) {
      const auto found = most_held_checkpoint(held, oldest_beginning(), last, least_replicas());
      if (found) return found;
    }
    return newest_common_checkpoint(held);
  };
  const auto found = find();
  if (!found) return std::nullopt;
  Beginning beginning{.step = found->first};
  for (const auto& [connection, guest] : guests_) {
    if (!counts(guest)) continue;
    const auto own = guest.ready->checkpoints.find(found->first);
    if (own != guest.ready->checkpoints.end() && own->second == found->second) {
      beginning.islands.emplace(guest.hello.name, connection);
    }
  }
  return beginning;
}

/// The step of the oldest checkpoint that the run may go on from: somebody holds that at least.
int64_t Coordinator::oldest_beginning() const {
  const int64_t last = book_.last_step();
  const int64_t oldest = options_.most_lost < last ? last - options_.most_lost : 0;
  // Whoever has had part in a commit holds it.
  const bool is_held = options_.keeps_rounds && last > 0;
  return std::max({oldest, book_.start_step(), int64_t{is_held ? 1 : 0}});
}

std::string Coordinator::newest_checkpoints() const {
  std::map<std::string, std::string> lines;  // By name.
  for (const auto& [connection, guest] : guests_) {
    if (!guest.ready) continue;
    const auto& [step, digest] = *guest.ready->checkpoints.rbegin();
    lines[guest.hello.name] =
        fmt::format("'{}' step {} ({})", guest.hello.name, step, printable(digest.substr(0, 12)));
  }
  std::string out;
  for (const auto& [name, line] : lines) out += (out.empty() ? "" : ", ") + line;
  return out;
}

void Coordinator::start_run(Time now) {
  const auto beginning = find_beginning();
  if (!beginning) {
    return fail("checkpoints: the islands have none in common to start from; the newest are " +
                newest_checkpoints() + "; start with run directories of one run, or empty ones");
  }
  const int64_t step = beginning->step;
  if (book_.has_begun() && book_.last_step() > step) {
    log(fmt::format("nobody holds what was committed after step {}: steps {} to {} are void", step,
                    step + 1, book_.last_step()));
  }
  for (const auto& [number, seat] : seats_) {  // They are away; what they hold is void.
    if (!seat.connection) continue;
    const Connection connection = *seat.connection;
    refuse(connection, "the run has begun anew: join again");
  }
  rounds_.clear();
  seats_.clear();
  no_links_.clear();
  mistrusted_.clear();
  outliers_ = Outliers(options_.outlier_factor);
  due_.reset();
  highest_begun_ = -1;
  record(RunBegan{options_.run, step, options_.replicas, facts_, options_.config});
  if (stop_requested_) note_stop();  // Rounds are counted anew.
  std::vector<int32_t> numbers;
  std::vector<std::string> names;
  for (const auto& [name, connection] : beginning->islands) {
    numbers.push_back(seat(connection, now));
    seats_.at(numbers.back()).caught_up = book_.num_commits();
    names.push_back(name);
  }
  num_begun_with_ = std::ssize(numbers);
  waits_for_more_ = false;  // Whoever is here begins.
  gather_notice_.clear();
  if (!options_.takes_newcomers) refuse_guests(step);
  const auto grants = record(Granted{numbers, 2 * options_.steps_ahead});
  view_ += 1;
  log(fmt::format("the run begins at step {} with {}", step, fmt::join(names, ", ")));
  for (const int32_t number : numbers) {
    seats_.at(number).state = State::kActive;
    seats_.at(number).trained = now;
    seats_.at(number).is_new = false;
    Start start = start_of(number, /*joins=*/false);
    start.units = grants.at(number);
    send_to(seats_.at(number), std::move(start));
  }
}

/// They cannot join later.
void Coordinator::refuse_guests(int64_t step) {
  std::vector<Connection> ready;
  for (const auto& [connection, guest] : guests_) {
    if (guest.ready) ready.push_back(connection);
  }
  for (const Connection connection : ready) {
    refuse(connection,
           fmt::format("the run goes on from step {}, which island '{}' does not hold, and its "
                       "method takes no islands under way; the newest checkpoints: {}",
                       step, guests_.at(connection).hello.name, newest_checkpoints()));
  }
}

/// Gives the guest of that connection the next number.
int32_t Coordinator::seat(Connection connection, Time now) {
  const int32_t number = book_.next_number();
  const Hello hello = std::move(guests_.extract(connection).mapped().hello);
  record(Admitted{{number, hello.name, hello.address}});
  seats_.emplace(
      number,
      Seat{.connection = connection, .suspicion = {options_.suspicion(), now}, .heard = now});
  numbers_[connection] = number;
  return number;
}

/// Who is ready joins the run that is under way.
void Coordinator::seat_guests(Time now) {
  if (num_live() < least_replicas()) {  // Rounds wait.
    const bool any_can = std::ranges::any_of(
        guests_, [&](const auto& entry) { return first_lacking(entry.second).has_value(); });
    // What those hold who are expected back is not known yet.
    if (any_can && (any_is(State::kReturning) || take_back_guests())) return;
  }
  // After the first period; if that cannot be completed without them, all begin again.
  if (is_first_period()) return begin_first_period_anew();
  if (!any_is(State::kActive)) return;  // Who could give them the state?
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
    if (!before.empty()) log(fmt::format("island '{}' is back and joins anew", name));
    for (const int32_t number : before) vacate(number, "it has joined anew");
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
  if (!any_ready || is_at_end() || num_live() >= least_replicas()) return;
  std::vector<int32_t> numbers;
  for (const auto& [number, seat] : seats_) {
    numbers.push_back(number);
    if (is_live(seat)) awaited_.insert(name(number));  // With what it holds.
  }
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

}  // namespace atl::swarm
