#include "atoll/swarm/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "atoll/swarm/rules.h"

namespace atl::swarm {

namespace {
constexpr size_t kMaxAddressBytes = 256;
constexpr size_t kMaxOpenRounds = 256;  // Methods keep a handful open.
constexpr size_t kMaxStrangers = 256;   // Each may hold one unfinished frame.
constexpr size_t kMaxEvents = 100;      // In the status.
}  // namespace

std::string program_version() { return ATOLL_VERSION; }

Coordinator::Coordinator(CoordinatorOptions options, Time now)
    : options_(std::move(options)),
      last_moved_(now),
      next_alive_(now + options_.alive_interval),
      began_(now),
      now_(now) {}

Header Coordinator::header(int64_t round, int32_t attempt) const {
  return {.run = options_.run, .term = options_.term, .round = round, .attempt = attempt};
}

void Coordinator::send(Connection to, Message message) {
  actions_.emplace_back(Send{to, std::move(message)});
}

void Coordinator::log(std::string line, bool event) {
  if (event) events_.push_back({.time_s = seconds(now_ - began_), .line = line});
  if (events_.size() > kMaxEvents) events_.pop_front();
  actions_.emplace_back(Log{std::move(line)});
}

void Coordinator::broadcast(const Message& message) {
  for (const auto& [connection, island] : islands_) {
    if (!island.left) send(connection, message);
  }
}

Coordinator::Actions Coordinator::take() { return std::exchange(actions_, {}); }

void Coordinator::refuse(Connection connection, const std::string& reason) {
  send(connection, Refused{header(), reason});
  actions_.emplace_back(Close{connection});
  strangers_.erase(connection);
  islands_.erase(connection);
}

void Coordinator::finish(Result<void> result) {
  for (const auto& [connection, when] : strangers_) actions_.emplace_back(Close{connection});
  for (const auto& [connection, island] : islands_) actions_.emplace_back(Close{connection});
  finished_ = true;
  log(result ? std::string("the run is over") : "the run ended: " + result.error().message);
  actions_.emplace_back(Finished{std::move(result)});
}

void Coordinator::fail(const std::string& reason) {
  if (finished_) return;
  std::string sentence = reason;
  if (started_) {
    sentence += last_round_ < 0 ? std::string("; no round was committed")
                                : fmt::format("; the last committed round is {} (step {})",
                                              last_round_, last_step_);
    sentence +=
        "; to resume, start the coordinator and all islands again with the same run directories";
  }
  broadcast(RunEnded{header(), sentence});
  finish(failure(sentence));
}

Coordinator::Actions Coordinator::opened(Connection connection, Time now) {
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
    if (const auto* hello = std::get_if<Hello>(&message)) {
      admit(connection, *hello, now);
    } else {
      refuse(connection, "an island must say Hello first");
    }
    return take();
  }
  const auto found = islands_.find(connection);
  if (found == islands_.end() || found->second.left) return take();
  found->second.heard = now;
  std::visit(
      [&](const auto& m) {
        if (m.header.run != options_.run || m.header.term != options_.term) {
          violate(connection,
                  fmt::format("spoke of run '{}', term {}; this is run '{}', term {}",
                              printable(m.header.run), m.header.term, options_.run, options_.term));
          return;
        }
        on(connection, found->second, m);
      },
      message);
  return take();
}

Coordinator::Actions Coordinator::garbled(Connection connection, const std::string& reason,
                                          Time /*now*/) {
  if (finished_) return take();
  if (islands_.contains(connection)) {
    violate(connection, "sent what is no message: " + reason);
  } else if (strangers_.contains(connection)) {
    log("a stranger was turned away: " + reason, /*event=*/false);
    refuse(connection, reason);
  }
  return take();
}

Coordinator::Actions Coordinator::lost(Connection connection, const std::string& reason, Time now) {
  now_ = now;
  strangers_.erase(connection);
  const auto found = islands_.find(connection);
  if (finished_ || found == islands_.end() || found->second.left) return take();
  const std::string what =
      fmt::format("island '{}' was lost: {}", found->second.hello.name, reason);
  const std::optional<int32_t> member =
      started_ ? std::optional(number_of(found->second)) : std::nullopt;
  if (member) {
    found->second.reason = reason;
    away_[*member] = std::move(found->second);
  }
  islands_.erase(found);
  if (member) {
    lose(*member, what);
  } else {
    log(fmt::format("{}; {} of {} islands are here", what, islands_.size(), num_replicas()));
  }
  return take();
}

void Coordinator::lose(int32_t member, const std::string& what) {
  here_.erase(member);
  if (std::cmp_less(here_.size(), options_.min_replicas)) return fail(what);
  log(fmt::format("{}; {} of {} islands go on", what, here_.size(), names_.size()));
  std::vector<int64_t> numbers;
  for (const auto& [number, round] : rounds_) numbers.push_back(number);
  for (const int64_t number : numbers) {
    if (!finished_) advance(number);
  }
  if (!finished_) finish_if_all_left();
}

void Coordinator::finish_if_all_left() {
  if (std::ranges::all_of(islands_, [](const auto& entry) { return entry.second.left; })) {
    finish({});
  }
}

int64_t Coordinator::num_replicas() const {
  return options_.replicas == 0 ? options_.min_replicas : options_.replicas;
}

int32_t Coordinator::number_of(const Island& island) const {
  const auto found = std::ranges::lower_bound(names_, island.hello.name);
  return static_cast<int32_t>(found - names_.begin());
}

Coordinator::Actions Coordinator::tick(Time now) {
  now_ = now;
  if (finished_ || now < next_alive_) return take();
  next_alive_ = now + options_.alive_interval;
  std::vector<Connection> silent;
  for (const auto& [connection, since] : strangers_) {
    if (now - since > options_.hello_timeout) silent.push_back(connection);
  }
  for (const Connection connection : silent) refuse(connection, "no Hello in time");
  silent.clear();
  for (const auto& [connection, island] : islands_) {
    if (!island.left && now - island.heard > options_.silence_timeout) silent.push_back(connection);
  }
  for (const Connection connection : silent) {
    actions_.emplace_back(Close{connection});
    Actions before = take();
    Actions after = lost(connection,
                         fmt::format("no word from it for {:.0f} s (swarm.silence_timeout)",
                                     seconds(options_.silence_timeout)),
                         now);
    std::ranges::move(after, std::back_inserter(before));
    actions_ = std::move(before);
  }
  if (!finished_) {
    const auto quiet = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_moved_);
    broadcast(Alive{header(), static_cast<uint64_t>(quiet.count())});
  }
  return take();
}

Coordinator::Actions Coordinator::request_stop(Time /*now*/) {
  if (finished_ || stop_requested_) return take();
  stop_requested_ = true;
  if (started_) {
    log("stopping after the next commit");
  } else {
    fail("the run was stopped before it began");
  }
  return take();
}

Coordinator::Actions Coordinator::end(const std::string& reason) {
  fail(reason);
  return take();
}

Time Coordinator::next_deadline() const { return finished_ ? Time::max() : next_alive_; }

void Coordinator::violate(Connection connection, const std::string& what) {
  const std::string reason = fmt::format("island '{}' broke the protocol: it {}",
                                         islands_.at(connection).hello.name, what);
  log(reason);
  if (started_) {
    fail(reason);
  } else {
    refuse(connection, reason);
  }
}

void Coordinator::admit(Connection connection, const Hello& hello, Time now) {
  const std::string objection = objection_to(hello);
  if (!objection.empty()) {
    log(fmt::format("island '{}' was refused: {}", printable(hello.name), objection));
    refuse(connection, objection);
    return;
  }
  strangers_.erase(connection);
  islands_[connection] = {.hello = hello, .heard = now};
  log(fmt::format("island '{}' joined from {} ({} of {})", hello.name, printable(hello.address),
                  islands_.size(), num_replicas()));
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
  std::vector<std::string> names;
  for (const auto& [connection, island] : islands_) {
    if (island.hello.name == hello.name) {
      return fmt::format("name: an island named '{}' takes part already; choose another",
                         hello.name);
    }
    names.push_back(island.hello.name);
  }
  if (started_ || std::cmp_greater_equal(islands_.size(), num_replicas())) {
    std::ranges::sort(names);
    return fmt::format(
        "the run has its {} islands ({}; swarm.min_replicas = {}); a run takes no "
        "more once they have come",
        names.size(), fmt::join(names, ", "), num_replicas());
  }
  return {};
}

std::string Coordinator::objection_to(const Ready& ready) const {
  if (ready.checkpoints.empty()) return "checkpoints: it has no state to start from";
  for (const auto& [connection, island] : islands_) {
    if (!island.ready) continue;
    const auto& [name, facts] = std::pair(island.hello.name, island.ready->facts);
    std::set<std::string> fields;
    for (const auto& [field, value] : facts) fields.insert(field);
    for (const auto& [field, value] : ready.facts) fields.insert(field);
    for (const std::string& field : fields) {
      const auto theirs = facts.find(field);
      const auto own = ready.facts.find(field);
      const std::string value = theirs == facts.end() ? "none" : theirs->second;
      const std::string ours = own == ready.facts.end() ? "none" : own->second;
      if (value != ours) {
        return fmt::format("{}: island '{}' has {}, this island {}", printable(field), name,
                           printable(value), printable(ours));
      }
    }
  }
  return {};
}

void Coordinator::on(Connection from, Island& island, const Ready& ready) {
  if (island.ready) return violate(from, "was ready twice");
  const std::string objection = objection_to(ready);
  if (!objection.empty()) {
    const std::string name = island.hello.name;
    refuse(from, objection);
    return log(fmt::format("island '{}' was refused: {}; {} of {} islands are here", name,
                           objection, islands_.size(), num_replicas()));
  }
  island.ready = ready;
  log(fmt::format("island '{}' is ready", island.hello.name));
  start_if_complete();
}

void Coordinator::start_if_complete() {
  std::map<std::string, const Island*> by_name;
  for (const auto& [connection, island] : islands_) {
    if (island.ready) by_name[island.hello.name] = &island;
  }
  if (std::cmp_less(by_name.size(), num_replicas())) return;
  std::vector<std::map<int64_t, std::string>> checkpoints;
  Start start{.header = header(), .view = 1};
  for (const auto& [name, island] : by_name) {
    checkpoints.push_back(island->ready->checkpoints);
    start.members.push_back({name, island->hello.address});
    here_.insert(static_cast<int32_t>(names_.size()));
    names_.push_back(name);
  }
  const auto step = newest_common_checkpoint(checkpoints);
  if (!step) {
    std::string held;
    for (const auto& [name, island] : by_name) {
      const auto& [newest, digest] = *island->ready->checkpoints.rbegin();
      held += fmt::format("{}'{}' step {} ({})", held.empty() ? "" : ", ", name, newest,
                          printable(digest.substr(0, 12)));
    }
    return fail("checkpoints: the islands have none in common to start from; the newest are " +
                held + "; start with run directories of one run, or empty ones");
  }
  start.start_step = last_step_ = *step;
  started_ = true;
  log(fmt::format("the run begins at step {} with {}", *step, fmt::join(names_, ", ")));
  broadcast(start);
}

void Coordinator::on(Connection from, Island& island, const Begin& begin) {
  const int64_t number = begin.header.round;
  if (!started_) return violate(from, "began a round before the start");
  for (const auto& [connection, other] : islands_) {
    if (other.left) {
      return fail(fmt::format("island '{}' left before round {}, which '{}' has begun",
                              other.hello.name, number, island.hello.name));
    }
  }
  if (const std::string fault = fault_of(begin); !fault.empty()) return violate(from, fault);
  if (number <= last_round_ && !rounds_.contains(number)) {
    return violate(from, fmt::format("began round {}, which is over", number));
  }
  if (!rounds_.contains(number) && rounds_.size() >= kMaxOpenRounds) {
    return violate(from,
                   fmt::format("began round {} with {} open already", number, rounds_.size()));
  }
  Round& round = rounds_[number];
  const int32_t member = number_of(island);
  if (round.begun.contains(member)) {
    return violate(from, fmt::format("began round {} twice", number));
  }
  if (!round.begun.empty()) {
    const auto& [other, first] = *round.begun.begin();
    const std::string difference = difference_of(first, begin);
    if (!difference.empty()) {
      return fail(fmt::format("round {}: islands '{}' and '{}' differ: {}", number,
                              names_[static_cast<size_t>(other)], island.hello.name, difference));
    }
  }
  round.begun[member] = begin;
  advance(number);
}

void Coordinator::advance(int64_t number) {
  Round& round = rounds_.at(number);
  const auto is_here = [&](int32_t member) { return here_.contains(member); };
  const auto all_here = [&](const auto& map) {
    return std::ranges::all_of(here_, [&](int32_t member) { return map.contains(member); });
  };
  // An attempt that all who are left have completed stands: who is lost since has sent its part.
  if (round.attempt >= 0 && all_here(round.prepared)) return commit(number, round);
  const bool waits_for_lost = !std::ranges::all_of(round.members, is_here);
  if ((round.attempt < 0 || waits_for_lost) && all_here(round.begun)) open(number, round);
}

void Coordinator::open(int64_t number, Round& round) {
  const Begin& first = round.begun.begin()->second;
  round.attempt += 1;
  round.members.assign(here_.begin(), here_.end());
  round.prepared.clear();
  OpenAttempt attempt{
      .header = header(number, round.attempt),
      .view = 1,
      .fragment = first.fragment,
      .count = first.count,
      .segment_values = first.segment_values,
      .members = round.members,
      .shares = equal_shares(num_segments(first.count, first.segment_values), std::ssize(here_))};
  for (const int32_t member : round.members)
    attempt.weights.push_back(round.begun.at(member).weight);
  broadcast(attempt);
}

void Coordinator::on(Connection from, Island& island, const Prepared& prepared) {
  const int64_t number = prepared.header.round;
  const auto found = rounds_.find(number);
  if (found == rounds_.end() || found->second.attempt < prepared.header.attempt ||
      prepared.header.attempt < 0) {
    return violate(from, fmt::format("prepared round {}, attempt {}, which is not open", number,
                                     prepared.header.attempt));
  }
  Round& round = found->second;
  if (prepared.header.attempt < round.attempt) return;  // It does not know of the next one yet.
  if (!round.prepared.emplace(number_of(island), prepared.digest).second) {
    return violate(from, fmt::format("prepared round {} twice", number));
  }
  advance(number);
}

void Coordinator::commit(int64_t number, const Round& round) {
  const auto name = [&](int32_t member) { return names_[static_cast<size_t>(member)]; };
  const auto& [first_member, first] = *round.prepared.begin();
  for (const auto& [member, digest] : round.prepared) {
    if (digest != first) {
      return fail(fmt::format("round {}: the results differ: '{}' has {}, '{}' has {}", number,
                              name(first_member), hex(first).substr(0, 12), name(member),
                              hex(digest).substr(0, 12)));
    }
  }
  last_round_ = std::max(last_round_, number);
  last_step_ = std::max(last_step_, round.begun.begin()->second.step);
  broadcast(Commit{header(number, round.attempt), first, stop_requested_});
  std::vector<std::string> abstainers;
  const Begin& begin = round.begun.begin()->second;
  Committed committed{.round = number, .fragment = begin.fragment, .step = begin.step};
  for (const int32_t member : round.members) {
    committed.weights[member] = round.begun.at(member).weight;
    if (round.begun.at(member).weight == 0) abstainers.push_back(name(member));
  }
  tally_.add(committed, here_, now_);
  log(fmt::format("round {} committed: step {}, digest {}{}{}", number,
                  round.begun.begin()->second.step, hex(first).substr(0, 12),
                  abstainers.empty()
                      ? std::string()
                      : fmt::format(", without '{}' (abstained)", fmt::join(abstainers, "', '")),
                  stop_requested_ ? ", stopping" : ""),
      /*event=*/false);
  rounds_.erase(number);
}

void Coordinator::on(Connection /*from*/, Island& island, const Heartbeat& heartbeat) {
  if (heartbeat.moved != island.progress.moved) last_moved_ = island.heard;
  island.progress = heartbeat;
}

void Coordinator::on(Connection from, Island& island, const Trouble& trouble) {
  const std::string what =
      fmt::format("island '{}' cannot go on: {}", island.hello.name, printable(trouble.reason));
  if (started_) {
    fail(what);
  } else {
    log(what);
    refuse(from, what);
  }
}

void Coordinator::on(Connection /*from*/, Island& island, const StopRequest& /*request*/) {
  if (stop_requested_) return;
  if (!started_) {
    return fail(fmt::format("island '{}' asked to stop before the run began", island.hello.name));
  }
  stop_requested_ = true;
  log(fmt::format("island '{}' asked to stop: stopping after the next commit", island.hello.name));
}

void Coordinator::on(Connection from, Island& island, const Leave& /*leave*/) {
  if (!started_) {
    log(fmt::format("island '{}' left before the start", island.hello.name));
    send(from, Goodbye{header()});
    actions_.emplace_back(Close{from});
    islands_.erase(from);
    return;
  }
  if (!rounds_.empty()) {
    return fail(
        fmt::format("island '{}' left in round {}", island.hello.name, rounds_.begin()->first));
  }
  island.left = true;
  send(from, Goodbye{header()});
  log(fmt::format("island '{}' is done", island.hello.name));
  finish_if_all_left();
}

template <typename Other>
void Coordinator::on(Connection from, Island& /*island*/, const Other& other) {
  violate(from, "sent a " + kind_name(other) + ", which is not for a coordinator");
}

}  // namespace atl::swarm
