#pragma once
// What a coordinator tells of its run (base/event.h): who comes and goes, rounds, links, the end.
// Reasons are for people; what strangers wrote in them was made fit to print before.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/event.h"

namespace atl::swarm {

// --- the run ---

/// It can be joined.
struct CoordinatorStarted {
  static constexpr const char* kKind = "coordinator_started";
  std::string run;
  std::string join;             // What `atoll join` is told.
  int64_t islands = 0;          // That the run begins with.
  std::optional<int64_t> step;  // Where a run stands that had begun before.
  int64_t steps = 0;
  void visit(auto&& field) const {
    field("run", run), field("join", join), field("islands", islands), field("step", step);
    field("steps", steps);
  }
  std::string sentence() const;
};

/// A coordinator was started again while its islands train.
struct RunContinued {
  static constexpr const char* kKind = "run_continued";
  std::string run;
  uint64_t term = 0;
  int64_t round = 0;  // The last committed one, and its
  int64_t step = 0;
  std::vector<std::string> islands;  // That are to return.
  void visit(auto&& field) const {
    field("run", run), field("term", term), field("round", round), field("step", step);
    field("islands", islands);
  }
  std::string sentence() const;
};

struct IslandsGathering {
  static constexpr const char* kKind = "islands_gathering";
  int64_t ready = 0;
  int64_t wanted = 0;
  void visit(auto&& field) const { field("ready", ready), field("wanted", wanted); }
  std::string sentence() const;
};

/// What those hold who are here is older than what the run had.
struct StateAwaited {
  static constexpr const char* kKind = "state_awaited";
  int64_t step = 0;    // Of the run.
  std::string newest;  // What is here, for people.
  void visit(auto&& field) const { field("step", step), field("newest", newest); }
  std::string sentence() const;
};

/// Nobody holds what was committed after `step`.
struct StepsVoid {
  static constexpr const char* kKind = "steps_void";
  int64_t step = 0;
  int64_t last = 0;  // Of the void ones.
  void visit(auto&& field) const { field("step", step), field("last", last); }
  std::string sentence() const;
};

struct RunBegun {
  static constexpr const char* kKind = "run_begun";
  int64_t step = 0;
  std::vector<std::string> islands;
  void visit(auto&& field) const { field("step", step), field("islands", islands); }
  std::string sentence() const;
};

struct RoundCommitted {
  static constexpr const char* kKind = "round_committed";
  int64_t round = 0;
  int32_t fragment = 0;
  int64_t step = 0;
  std::string digest;                   // Of the fragment's state after it.
  std::vector<std::string> abstainers;  // Members with weight 0 who said so themselves.
  bool is_last = false;                 // All stop with it.
  void visit(auto&& field) const {
    field("round", round), field("fragment", fragment), field("step", step);
    field("digest", digest), field("abstainers", abstainers), field("is_last", is_last);
  }
  std::string sentence() const;
};

struct RoundsWait {
  static constexpr const char* kKind = "rounds_wait";
  int64_t live = 0;   // Islands that are there.
  int64_t least = 0;  // Islands that a round needs.
  void visit(auto&& field) const { field("live", live), field("least", least); }
  std::string sentence() const;
};

struct RoundsGoOn {
  static constexpr const char* kKind = "rounds_go_on";
  int64_t live = 0;
  int64_t least = 0;
  void visit(auto&& field) const { field("live", live), field("least", least); }
  std::string sentence() const;
};

/// It was stopped while it waited for the islands that it begins with; servers of layers may have
/// used its directory meanwhile.
struct RunNotBegun {
  static constexpr const char* kKind = "run_not_begun";
  void visit(auto&& /*field*/) const {}
  std::string sentence() const;
};

/// All stop after a commit to come.
struct StopRequested {
  static constexpr const char* kKind = "stop_requested";
  std::optional<std::string> island;  // Nobody's: the operator's.
  void visit(auto&& field) const { field("island", island); }
  std::string sentence() const;
};

struct RunOver {
  static constexpr const char* kKind = "run_over";
  int64_t step = 0;
  void visit(auto&& field) const { field("step", step); }
  std::string sentence() const;
};

struct RunStopped {
  static constexpr const char* kKind = "run_stopped";
  int64_t step = 0;
  int64_t steps = 0;
  void visit(auto&& field) const { field("step", step), field("steps", steps); }
  std::string sentence() const;
};

struct RunFailed {
  static constexpr const char* kKind = "run_failed";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

/// Its coordinator could not keep what it was about to decide.
struct RunStandsStill {
  static constexpr const char* kKind = "run_stands_still";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

// --- before an island is a member ---

struct StrangerRefused {
  static constexpr const char* kKind = "stranger_refused";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

struct IslandCame {
  static constexpr const char* kKind = "island_came";
  std::string island;
  std::string address;  // Where others reach it.
  void visit(auto&& field) const { field("island", island), field("address", address); }
  std::string sentence() const;
};

struct IslandRefused {
  static constexpr const char* kKind = "island_refused";
  std::string island;
  std::string reason;
  void visit(auto&& field) const { field("island", island), field("reason", reason); }
  std::string sentence() const;
};

struct IslandReady {
  static constexpr const char* kKind = "island_ready";
  std::string island;
  void visit(auto&& field) const { field("island", island); }
  std::string sentence() const;
};

struct GuestLeft {
  static constexpr const char* kKind = "guest_left";
  std::string island;
  void visit(auto&& field) const { field("island", island); }
  std::string sentence() const;
};

struct GuestLost {
  static constexpr const char* kKind = "guest_lost";
  std::string island;
  std::string reason;
  void visit(auto&& field) const { field("island", island), field("reason", reason); }
  std::string sentence() const;
};

struct GuestFailed {
  static constexpr const char* kKind = "guest_failed";
  std::string island;
  std::string reason;
  void visit(auto&& field) const { field("island", island), field("reason", reason); }
  std::string sentence() const;
};

/// As a member of a run that is under way.
struct IslandJoins {
  static constexpr const char* kKind = "island_joins";
  std::string island;
  int64_t step = 0;
  void visit(auto&& field) const { field("island", island), field("step", step); }
  std::string sentence() const;
};

// --- members ---

/// It missed rounds, and has made up for them.
struct IslandCaughtUp {
  static constexpr const char* kKind = "island_caught_up";
  std::string island;
  int64_t round = 0;  // The first that it takes part in.
  void visit(auto&& field) const { field("island", island), field("round", round); }
  std::string sentence() const;
};

/// The rounds go on without it.
struct IslandLost {
  static constexpr const char* kKind = "island_lost";
  std::string island;
  std::string reason;
  int64_t live = 0;     // Islands that go on.
  int64_t members = 0;  // Islands that there were.
  void visit(auto&& field) const {
    field("island", island), field("reason", reason), field("live", live);
    field("members", members);
  }
  std::string sentence() const;
};

struct AllIslandsLost {
  static constexpr const char* kKind = "all_islands_lost";
  void visit(auto&&) const {}
  std::string sentence() const;
};

/// It was committed, and its result lost with all who had it.
struct RoundMadeAgain {
  static constexpr const char* kKind = "round_made_again";
  int64_t round = 0;
  int64_t step = 0;
  void visit(auto&& field) const { field("round", round), field("step", step); }
  std::string sentence() const;
};

/// In a new process, as the member that it was: it holds on disk all that it had.
struct IslandComputesAgain {
  static constexpr const char* kKind = "island_computes_again";
  std::string island;
  void visit(auto&& field) const { field("island", island); }
  std::string sentence() const;
};

struct IslandBack {
  static constexpr const char* kKind = "island_back";
  std::string island;
  bool is_anew = false;  // Without its state, so as a new member.
  void visit(auto&& field) const { field("island", island), field("is_anew", is_anew); }
  std::string sentence() const;
};

/// By itself, and has nothing that the others lack.
struct IslandLeft {
  static constexpr const char* kKind = "island_left";
  std::string island;
  void visit(auto&& field) const { field("island", island); }
  std::string sentence() const;
};

struct IslandRemoved {
  static constexpr const char* kKind = "island_removed";
  std::string island;
  std::string reason;
  void visit(auto&& field) const { field("island", island), field("reason", reason); }
  std::string sentence() const;
};

/// What it says of itself or of another, in its words.
struct IslandInTrouble {
  static constexpr const char* kKind = "island_in_trouble";
  std::string island;
  std::string reason;
  void visit(auto&& field) const { field("island", island), field("reason", reason); }
  std::string sentence() const;
};

struct ProtocolBroken {
  static constexpr const char* kKind = "protocol_broken";
  std::string island;
  std::string what;  // It did.
  void visit(auto&& field) const { field("island", island), field("what", what); }
  std::string sentence() const;
};

/// What it contributed to a round counts with weight 0.
struct IslandLeftOut {
  static constexpr const char* kKind = "island_left_out";
  std::string island;
  int64_t round = 0;
  std::string offence;           // norm, direction or unusable.
  std::optional<double> figure;  // Its norm, or its cosine to the mean of the others,
  std::optional<double> usual;   // and what is usual.
  std::string reason;
  void visit(auto&& field) const {
    field("island", island), field("round", round), field("offence", offence);
    field("figure", figure), field("usual", usual), field("reason", reason);
  }
  std::string sentence() const;
};

// --- links between two of them ---

struct LinkLost {
  static constexpr const char* kKind = "link_lost";
  std::vector<std::string> islands;  // Two; who says so is the first.
  std::string reason;
  void visit(auto&& field) const { field("islands", islands), field("reason", reason); }
  std::string sentence() const;
};

struct LinkBack {
  static constexpr const char* kKind = "link_back";
  std::vector<std::string> islands;
  std::string way;    // direct, punched or relayed.
  std::string relay;  // Where they met; empty where they did not.
  void visit(auto&& field) const {
    field("islands", islands), field("way", way), field("relay", relay);
  }
  std::string sentence() const;
};

/// The coordinator cannot call it where others are told that it is.
struct IslandNotReached {
  static constexpr const char* kKind = "island_not_reached";
  std::string island;
  std::string address;
  std::string reason;
  void visit(auto&& field) const {
    field("island", island), field("address", address), field("reason", reason);
  }
  std::string sentence() const;
};

/// Members may meet there.
struct RelayCame {
  static constexpr const char* kKind = "relay_came";
  std::string relay;
  std::string address;
  void visit(auto&& field) const { field("relay", relay), field("address", address); }
  std::string sentence() const;
};

struct RelayRefused {
  static constexpr const char* kKind = "relay_refused";
  std::string relay;
  std::string reason;
  void visit(auto&& field) const { field("relay", relay), field("reason", reason); }
  std::string sentence() const;
};

struct RelayLost {
  static constexpr const char* kKind = "relay_lost";
  std::string relay;
  std::string reason;
  void visit(auto&& field) const { field("relay", relay), field("reason", reason); }
  std::string sentence() const;
};

/// A round does without an island that cannot reach another, nor meet it anywhere.
struct IslandUnreachable {
  static constexpr const char* kKind = "island_unreachable";
  std::string island;
  std::string other;
  int64_t round = 0;
  void visit(auto&& field) const {
    field("island", island), field("other", other), field("round", round);
  }
  std::string sentence() const;
};

}  // namespace atl::swarm
