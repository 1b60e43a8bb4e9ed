#pragma once
// For tests of the coordinator: event by event, with a clock made by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"

namespace atl::swarm {

inline constexpr Time kStart{};
inline const Header kRun{.run = "r1", .term = 1};

/// The messages of one kind among the actions, with their receivers.
template <typename Kind>
std::vector<std::pair<uint64_t, Kind>> sent(const Coordinator::Actions& actions) {
  std::vector<std::pair<uint64_t, Kind>> out;
  for (const auto& action : actions) {
    const auto* send = std::get_if<Coordinator::Send>(&action);
    if (send == nullptr) continue;
    if (const auto* kind = std::get_if<Kind>(&send->message)) out.emplace_back(send->to, *kind);
  }
  return out;
}

inline bool closes(const Coordinator::Actions& actions, uint64_t connection) {
  return std::ranges::any_of(actions, [&](const auto& action) {
    const auto* close = std::get_if<Coordinator::Close>(&action);
    return close != nullptr && close->connection == connection;
  });
}

/// The events among the actions.
inline std::vector<Event> told(const Coordinator::Actions& actions) {
  std::vector<Event> out;
  for (const auto& action : actions) {
    if (const auto* log = std::get_if<Coordinator::Log>(&action)) out.push_back(log->event);
  }
  return out;
}

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() : coordinator(options(), {}, kStart) { coordinator.begin(); }

  static CoordinatorOptions options() {
    return {.run = "r1",
            .version = "0.1.0",
            .config = "text",
            .settings = {{"sync.sync_every", "20"}},
            .replicas = 2,
            .steps_ahead = 4};
  }

  Hello hello(const std::string& name) {
    return {.version = "0.1.0", .name = name, .address = name + ":1"};
  }
  Coordinator::Actions say(uint64_t connection, const Message& message) {
    return coordinator.received(connection, message, now);
  }
  std::string refusal_of(const Hello& message) {
    coordinator.opened(9, now);
    const auto actions = say(9, message);
    const auto refused = sent<Refused>(actions);
    EXPECT_TRUE(refused.empty() || closes(actions, 9));
    return refused.empty() ? "" : refused[0].second.reason;
  }
  Ready ready() { return {kRun, {{"data", "d"}}, {{0, "p"}}}; }
  /// What the records of all actions so far make, as a coordinator finds it that comes after.
  Coordinator::Actions keep(Coordinator::Actions actions) {
    for (const auto& action : actions) {
      const auto* persist = std::get_if<Coordinator::Persist>(&action);
      if (persist != nullptr) kept.apply(persist->record);
    }
    return actions;
  }
  /// Islands b (connection 1) and a (2), so that numbers are by name and not by arrival. What
  /// follows the last word.
  Coordinator::Actions start_two(Coordinator& run) {
    for (const uint64_t connection : {1, 2}) {
      run.opened(connection, now);
      run.received(connection, hello(connection == 1 ? "b" : "a"), now);
    }
    run.received(1, ready(), now);
    return run.received(2, ready(), now);
  }
  void start_two() { start = sent<Start>(start_two(coordinator)).at(0).second; }
  /// A round of the two, from its beginning to its commit: what follows the last word.
  Coordinator::Actions commit(int64_t round) {
    for (const uint64_t connection : {1, 2}) say(connection, begin(round));
    say(1, prepared(round));
    return say(2, prepared(round));
  }
  Begin begin(int64_t round, int64_t weight = 10) {
    Header header = kRun;
    header.round = round;
    return {.header = header,
            .step = round * 20,
            .weight = weight,
            .count = 5000,
            .segment_values = 1024};
  }
  Prepared prepared(int64_t round, std::byte mark = {}, std::vector<double> squares = {1, 1}) {
    Prepared message{.header = {.run = "r1", .term = 1, .round = round, .attempt = 0},
                     .measures = {.squares = std::move(squares)}};
    message.digest[0] = mark;
    return message;
  }

  Time now = kStart;
  Coordinator coordinator;
  Book kept;
  Start start;
};

/// b, a and c, whose connections are 1, 2 and 3, and whose numbers go by their names.
class ThreeIslandsTest : public CoordinatorTest {
 protected:
  ThreeIslandsTest() {
    CoordinatorOptions three = options();
    three.replicas = 3;
    coordinator = Coordinator(three, {}, now);
    coordinator.begin();
    for (const uint64_t connection : {1, 2, 3}) {
      coordinator.opened(connection, now);
      say(connection, hello(std::string(1, "bac"[connection - 1])));
    }
    for (const uint64_t connection : {1, 2, 3}) say(connection, ready());
    for (const uint64_t connection : {1, 2, 3}) say(connection, begin(0));
  }
};

}  // namespace atl::swarm
