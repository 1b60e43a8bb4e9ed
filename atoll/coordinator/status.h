#pragma once
// What an operator wants to know of a run, as its coordinator sees it: plain structs, and the forms
// in which they leave the process. JSON is for programs and `atoll status`, which reads it back;
// the text of Prometheus is for what stores histories. Unknown values are empty (JSON: null; left
// out for Prometheus), never 0.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

std::string_view name_of(RunState state);
std::string_view name_of(IslandState state);

/// What an island sends to another.
struct LinkStatus {
  std::string to;                     // The other island's name.
  std::optional<double> bytes_per_s;  // Measured while something was sent.
  std::optional<double> rtt_s;        // Seconds to there and back.
};

struct IslandStatus {
  std::string name;
  std::optional<int64_t> number;  // Once it has one.
  std::string address;            // HOST:PORT where other islands reach it.
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
};

/// Somebody came, went, or was turned away; the run began or ended.
struct MembershipEvent {
  double time_s = 0;  // Seconds since the coordinator's start.
  std::string kind;   // As in coordinator/events.h.
  std::string line;   // The sentence.
};

/// Being heard, taking part and being averaged are three things: an island may send signs of life
/// for days while no commit holds any of its work. So they are counted apart.
struct RunStatus {
  std::string name;  // That islands ask for; empty where the coordinator has but one run.
  std::string run;   // Its id.
  uint64_t term = 0;
  uint64_t view = 0;  // 0 before the start.
  RunState state = RunState::kGathering;
  std::optional<int64_t> round;      // The last committed one.
  int64_t step = 0;                  // Of that round; before the first one, where the run began.
  std::optional<int64_t> steps;      // Of the whole run.
  int64_t committed_tokens = 0;      // Since this coordinator's start.
  double uptime_s = 0;               // Since this coordinator's start.
  std::optional<double> started_at;  // That start, in seconds since 1970.
  double age_s = 0;                  // Of what this says, when it was asked for.
  std::optional<double> rounds_per_minute;
  std::optional<double> seconds_left;
  int64_t wanted = 0;         // Islands that the run begins with.
  int64_t live = 0;           // Islands that are heard and have not left.
  int64_t participating = 0;  // Members of the last commit.
  /// Tokens that the last commit averaged, as a share of what its members and all live islands
  /// could have brought: who brought none counts with what it brought last, or as the others' mean.
  std::optional<double> averaged_share;
  std::string alarm;                  // A sentence where those three part; empty when all is well.
  std::vector<IslandStatus> islands;  // By name.
  std::vector<MembershipEvent> events;  // The last ones, oldest first.
};

/// One JSON object, on one line.
std::string to_json(const RunStatus& status);
/// Reads to_json()'s. Fields that are missing keep their defaults, unknown ones are ignored; throws
/// InputError when it is no status of a run.
RunStatus run_status_from_json(std::string_view text);

/// Of all runs of a coordinator: of the only one to_json(), of several {"runs": [...]} of those.
std::string runs_to_json(const std::vector<RunStatus>& runs);
/// Reads runs_to_json()'s, as run_status_from_json() does.
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
