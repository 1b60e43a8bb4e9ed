#include "atoll/coordinator/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

using json = nlohmann::ordered_json;  // A person who reads it meets the run before its islands.

// In the order of the enumerators.
constexpr std::array<std::string_view, 4> kRunStates = {"gathering", "training", "stopping",
                                                        "over"};
constexpr std::array<std::string_view, 5> kIslandStates = {"joining", "fetching", "training",
                                                           "away", "left"};

// The fields of each struct, once, for writing and reading.

template <typename Link, typename Field>
  requires std::same_as<std::remove_const_t<Link>, LinkStatus>
void visit(Link& link, const Field& field) {
  field("to", link.to);
  field("bytes_per_s", link.bytes_per_s);
  field("rtt_s", link.rtt_s);
}

template <typename Island, typename Field>
  requires std::same_as<std::remove_const_t<Island>, IslandStatus>
void visit(Island& island, const Field& field) {
  field("name", island.name);
  field("number", island.number);
  field("address", island.address);
  field("state", island.state);
  field("reason", island.reason);
  field("step", island.step);
  field("loss", island.loss);
  field("tokens_per_s", island.tokens_per_s);
  field("tokens", island.tokens);
  field("last_round", island.last_round);
  field("left_out", island.left_out);
  field("heard_s", island.heard_s);
  field("stall_share", island.stall_share);
  field("links", island.links);
}

template <typename Event, typename Field>
  requires std::same_as<std::remove_const_t<Event>, MembershipEvent>
void visit(Event& event, const Field& field) {
  field("time_s", event.time_s);
  field("kind", event.kind);
  field("line", event.line);
}

template <typename Run, typename Field>
  requires std::same_as<std::remove_const_t<Run>, RunStatus>
void visit(Run& run, const Field& field) {
  field("name", run.name);
  field("run", run.run);
  field("term", run.term);
  field("view", run.view);
  field("state", run.state);
  field("round", run.round);
  field("step", run.step);
  field("steps", run.steps);
  field("committed_tokens", run.committed_tokens);
  field("uptime_s", run.uptime_s);
  field("started_at", run.started_at);
  field("age_s", run.age_s);
  field("rounds_per_minute", run.rounds_per_minute);
  field("seconds_left", run.seconds_left);
  field("wanted", run.wanted);
  field("live", run.live);
  field("participating", run.participating);
  field("averaged_share", run.averaged_share);
  field("alarm", run.alarm);
  field("islands", run.islands);
  field("events", run.events);
}

template <typename T>
concept Plain = std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;

template <typename T>
json written(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return name_of(value);
  } else if constexpr (Plain<T>) {
    return value;  // A number that JSON does not have (NaN) will be null.
  } else if constexpr (requires { value.has_value(); }) {
    return value ? written(*value) : json();
  } else if constexpr (requires { value.begin(); }) {
    json list = json::array();
    for (const auto& item : value) list.push_back(written(item));
    return list;
  } else {
    json object = json::object();
    visit(value, [&](const char* name, const auto& part) { object[name] = written(part); });
    return object;
  }
}

template <typename State>
void read_state(const json& from, State& state, const auto& names) {
  const auto name = from.get<std::string>();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw InputError(fmt::format("'{}' is no state", printable(name)));
  state = static_cast<State>(found - names.begin());
}

template <typename T>
void read(const json& from, T& value) {
  if constexpr (std::is_same_v<T, RunState>) {
    read_state(from, value, kRunStates);
  } else if constexpr (std::is_same_v<T, IslandState>) {
    read_state(from, value, kIslandStates);
  } else if constexpr (Plain<T>) {
    if (std::is_integral_v<T> && !from.is_number_integer()) throw InputError("no whole number");
    value = from.get<T>();
  } else if constexpr (requires { value.has_value(); }) {
    read(from, value.emplace());
  } else if constexpr (requires { value.begin(); }) {
    if (!from.is_array()) throw InputError("no list");
    for (const json& item : from) read(item, value.emplace_back());
  } else {
    if (!from.is_object()) throw InputError("no object");
    visit(value, [&](const char* name, auto& part) {
      const auto found = from.find(name);
      if (found != from.end() && !found->is_null()) read(*found, part);
    });
  }
}

RunStatus read_run(const json& object) {
  for (const char* field : {"run", "state", "islands"}) {
    if (!object.is_object() || !object.contains(field)) {
      throw InputError(fmt::format("it has no '{}'", field));
    }
  }
  RunStatus status;
  read(object, status);
  return status;
}

}  // namespace

std::string_view name_of(RunState state) { return kRunStates.at(static_cast<size_t>(state)); }

std::string_view name_of(IslandState state) { return kIslandStates.at(static_cast<size_t>(state)); }

std::string to_json(const RunStatus& status) {
  // An address may hold any bytes: what is no UTF-8 is replaced, not thrown at the reader.
  return written(status).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

RunStatus run_status_from_json(std::string_view text) {
  std::vector<RunStatus> runs = runs_from_json(text);
  if (runs.size() != 1) throw InputError("this is the status of several runs, not of one");
  return std::move(runs[0]);
}

std::string runs_to_json(const std::vector<RunStatus>& runs) {
  if (runs.size() == 1) return to_json(runs[0]);
  std::string list;
  for (const RunStatus& run : runs) list += (list.empty() ? "" : ",") + to_json(run);
  return "{\"runs\":[" + list + "]}";
}

std::vector<RunStatus> runs_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    const bool are_several = object.is_object() && object.contains("runs");
    if (!are_several) return {read_run(object)};
    std::vector<RunStatus> runs;
    for (const json& run : object["runs"]) runs.push_back(read_run(run));
    if (runs.empty()) throw InputError("there is none");
    return runs;
  } catch (const std::exception& error) {
    throw InputError(fmt::format("this is not the status of a run: {}", printable(error.what())));
  }
}

}  // namespace atl::swarm
