#pragma once
// What an operator wants to know of a run, as its coordinator sees it: plain structs, and the forms
// in which they leave the process, each from the same lists of fields. JSON is for programs and
// `atoll status`, which reads it back; the text of Prometheus is for what stores histories. Unknown
// values are empty (JSON: null; left out for Prometheus), never 0.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/chain/lease.h"

namespace atl::swarm {

enum class RunState {
  kGathering,  // Not enough islands have come.
  kTraining,
  kStopping,  // After the next sync.
  kOver,
};

enum class IslandState {
  kJoining,   // Admitted; gets ready, or is ready and waits for the others.
  kFetching,  // Takes the global copy from others.
  kTraining,
  kAway,  // Lost: it is not heard, or said that it cannot go on.
  kLeft,  // Done.
};

/// In the order of the enumerators.
std::span<const std::string_view> names_of(RunState);
std::span<const std::string_view> names_of(IslandState);
template <typename State>
std::string_view name_of(State state) {
  return names_of(state)[static_cast<size_t>(state)];
}

/// Behind a field: the metric that Prometheus has of it, atoll_`name`.
struct Metric {
  const char* name;
  const char* help;
  const char* type = "gauge";
};

/// What an island sends to another.
struct LinkStatus {
  std::string to;                     // The other island's name.
  std::optional<double> bytes_per_s;  // Measured while something was sent.
  std::optional<double> rtt_s;        // Seconds to there and back.

  void visit(auto&& field) {
    field("to", to);
    field("bytes_per_s", bytes_per_s,
          Metric{"link_bytes_per_second", "Measured while one island sent to another."});
    field("rtt_s", rtt_s, Metric{"link_rtt_seconds", "From one island to another and back."});
  }
};

struct IslandStatus {
  std::string name;
  std::optional<int64_t> number;  // Once it has one.
  std::string address;            // HOST:PORT where other islands reach it.
  std::string unreachable;        // Why the coordinator cannot call it there; empty: it can.
  IslandState state = IslandState::kJoining;
  std::string reason;  // Why it is in this state, where that says something.
  int64_t step = 0;    // The last that it told of.
  std::optional<double> loss;
  std::optional<double> tokens_per_s;
  int64_t tokens = 0;                 // Of its own in committed rounds.
  std::optional<int64_t> last_round;  // The last committed one that it took part in.
  int64_t left_out = 0;               // Rounds that its contribution was left out of.
  double heard_s = 0;                 // Seconds since it was heard.
  std::optional<double> stall_share;  // Of its training time, 0 to 1.
  std::vector<LinkStatus> links;

  void visit(auto&& field) {
    field("name", name);
    field("number", number);
    field("address", address);
    field("unreachable", unreachable);
    field("state", state,
          Metric{"island_state", "1 for the state that the island is in, 0 for the others."});
    field("reason", reason);
    field("step", step, Metric{"island_step", "Inner step of the island."});
    field("loss", loss, Metric{"island_loss", "Training loss of the island."});
    field("tokens_per_s", tokens_per_s,
          Metric{"island_tokens_per_second", "Tokens per second that the island trains on."});
    field("tokens", tokens,
          Metric{"island_committed_tokens_total", "Tokens of the island in committed rounds.",
                 "counter"});
    field("last_round", last_round,
          Metric{"island_last_round", "The last committed round that the island took part in."});
    field(
        "left_out", left_out,
        Metric{"island_left_out_rounds_total",
               "Rounds that the island's contribution was left out of: an outlier, or not usable.",
               "counter"});
    field("heard_s", heard_s,
          Metric{"island_heard_seconds", "Seconds since the coordinator heard of the island."});
    field(
        "stall_share", stall_share,
        Metric{"island_stall_share", "Share of its training time that the island waits (0 to 1)."});
    field("links", links);
  }
};

/// Somebody came, went, or was turned away; the run began or ended.
struct MembershipEvent {
  double time_s = 0;  // Seconds since the coordinator's start.
  std::string kind;   // As in coordinator/events.h.
  std::string line;   // The sentence.

  void visit(auto&& field) { field("time_s", time_s), field("kind", kind), field("line", line); }
};

/// Two islands that reach each other by a detour, or not at all.
struct WayStatus {
  std::vector<std::string> islands;  // Two.
  std::string way;                   // punched, relayed or none.
  std::string relay;                 // Where they met.

  void visit(auto&& field) { field("islands", islands), field("way", way), field("relay", relay); }
};

struct RelayStatus {
  std::string name;
  std::string address;

  void visit(auto&& field) { field("name", name), field("address", address); }
};

/// One that serves layers of a model, or is to.
struct ServerStatus {
  std::string name;
  std::string address;  // HOST:PORT where gateways reach it.
  std::string model;    // Its name.
  chain::LeaseState state = chain::LeaseState::kWaiting;
  std::optional<int64_t> first;  // Layer that it has,
  std::optional<int64_t> last;
  int64_t layers = 0;  // Of the model.
  int64_t sessions = 0;
  int64_t free_positions = 0;          // Tokens for which there is memory.
  std::optional<double> layers_per_s;  // For one token of one text.

  void visit(auto&& field) {
    field("name", name);
    field("address", address);
    field("model", model);
    field("state", state,
          Metric{"server_state", "1 for the state that the server is in, 0 for the others."});
    field("first", first, Metric{"server_first_layer", "The first layer that the server has."});
    field("last", last, Metric{"server_last_layer", "The last layer that the server has."});
    field("layers", layers);
    field("sessions", sessions, Metric{"server_sessions", "Texts that the server works on."});
    field("free_positions", free_positions,
          Metric{"server_free_positions", "Tokens for which the server has memory left."});
    field("layers_per_s", layers_per_s,
          Metric{"server_layers_per_second", "Layers of one token that the server computes."});
  }
};

/// By name.
std::vector<ServerStatus> server_statuses(const std::vector<chain::Lease>& leases);

/// Being heard, taking part and being averaged are three things: an island may send signs of life
/// for days while no commit holds any of its work. So they are counted apart.
struct RunStatus {
  std::string name;  // That islands ask for; empty where the coordinator has but one run.
  std::string run;   // Its id.
  uint64_t term = 0;
  uint64_t view = 0;  // 0 before the start.
  RunState state = RunState::kGathering;
  std::optional<int64_t> round;      // The last committed one.
  int64_t step = 0;                  // Of the last round; before the first, where the run began.
  std::optional<int64_t> steps;      // Of the whole run.
  int64_t committed_tokens = 0;      // Since this coordinator's start.
  double uptime_s = 0;               // Since this coordinator's start.
  std::optional<double> started_at;  // The coordinator's start, in seconds since 1970.
  double age_s = 0;                  // Of what this says, when it was asked for.
  std::optional<double> rounds_per_minute;
  std::optional<double> seconds_left;
  int64_t wanted = 0;         // Islands that the run begins with.
  int64_t live = 0;           // Islands that are heard and have not left.
  int64_t participating = 0;  // Members of the last commit.
  /// Tokens that the last commit averaged, as a share of what its members and all live islands
  /// could have brought: who brought none counts with what it brought last, or as the others' mean.
  std::optional<double> averaged_share;
  /// A sentence where being heard, taking part and being averaged differ; empty when all is well.
  std::string alarm;
  std::vector<IslandStatus> islands;    // By name.
  std::vector<WayStatus> ways;          // Of pairs that do not reach each other directly.
  std::vector<RelayStatus> relays;      // By name.
  std::vector<ServerStatus> servers;    // By name; of layers of models.
  std::vector<MembershipEvent> events;  // The last ones, oldest first.

  void visit(auto&& field) {
    field("name", name);
    field("run", run);
    field("term", term, Metric{"term", "The coordinator's incarnation."});
    field("view", view, Metric{"view", "Number of the membership; 0 before the start."});
    field("state", state);
    field("round", round, Metric{"round", "The last committed round."});
    field("step", step, Metric{"step", "Inner step of the last committed round."});
    field("steps", steps, Metric{"steps", "Inner steps of the whole run."});
    field("committed_tokens", committed_tokens,
          Metric{"committed_tokens_total",
                 "Tokens in committed rounds since the coordinator's start.", "counter"});
    field("uptime_s", uptime_s, Metric{"uptime_seconds", "Seconds since the coordinator's start."});
    field("started_at", started_at);
    field("age_s", age_s,
          Metric{"age_seconds", "Seconds since the coordinator published all this."});
    field("rounds_per_minute", rounds_per_minute,
          Metric{"rounds_per_minute", "Committed rounds per minute, lately."});
    field("seconds_left", seconds_left,
          Metric{"seconds_left", "Until the last step, at the pace of the last rounds."});
    field("wanted", wanted, Metric{"islands_wanted", "Islands that the run begins with."});
    field("live", live, Metric{"islands_live", "Islands that are heard and have not left."});
    field("participating", participating,
          Metric{"islands_participating", "Members of the last commit."});
    field("averaged_share", averaged_share,
          Metric{"averaged_weight_share",
                 "Tokens that the last commit averaged, of those that its members and all live "
                 "islands could have brought (0 to 1)."});
    field("alarm", alarm, Metric{"alarm", "1 when live islands take no part in commits."});
    field("islands", islands);
    field("ways", ways);
    field("relays", relays);
    field("servers", servers);
    field("events", events);
  }
};

/// One JSON object, on one line.
std::string to_json(const RunStatus& status);
/// Of all runs of a coordinator: of the only one to_json(), of several {"runs": [...]} of those.
std::string runs_to_json(const std::vector<RunStatus>& runs);
/// Reads runs_to_json()'s. Fields that are missing keep their defaults, unknown ones are ignored;
/// throws InputError when it is no status of runs.
std::vector<RunStatus> runs_from_json(std::string_view text);

/// Text exposition format 0.0.4; all names begin with atoll_. Runs that have names are told apart
/// by the label `run`.
std::string to_prometheus(const std::vector<RunStatus>& runs);
inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

/// A table for people. Names and sentences come from islands: only printable ASCII is shown.
std::string to_text(const RunStatus& status);
/// The same on one line, for a log.
std::string to_line(const RunStatus& status);

}  // namespace atl::swarm
