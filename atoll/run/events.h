#pragma once
// What an island tells of its training, and a launcher of its processes (base/event.h). Of warnings
// the sentence says that they are. LibTorch-free.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/base/event.h"

namespace atl::run {

// --- an island joins ---

struct CoordinatorSought {
  static constexpr const char* kKind = "coordinator_sought";
  std::string coordinator;
  double patience_s = 0;
  void visit(auto&& field) const {
    field("coordinator", coordinator), field("patience_s", patience_s);
  }
  std::string sentence() const;
};

/// Nobody answers there, for some seconds. It is tried again.
struct CoordinatorUnanswered {
  static constexpr const char* kKind = "coordinator_unanswered";
  std::string coordinator;
  void visit(auto&& field) const { field("coordinator", coordinator); }
  std::string sentence() const;
};

// --- a relay ---

/// The coordinator tells members of it.
struct RelayTaken {
  static constexpr const char* kKind = "relay_taken";
  std::string coordinator;
  std::string address;  // Where members meet.
  void visit(auto&& field) const { field("coordinator", coordinator), field("address", address); }
  std::string sentence() const;
};

/// It is tried again and again.
struct CoordinatorMissed {
  static constexpr const char* kKind = "coordinator_missed";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

// --- certificates ---

struct CertificateNotRenewed {
  static constexpr const char* kKind = "certificate_not_renewed";
  std::string reason;
  std::string until;  // When the one that there is ends.
  void visit(auto&& field) const { field("reason", reason), field("until", until); }
  std::string sentence() const;
};

/// On this LAN: it has proved itself there, and the address that was known is another.
struct CoordinatorFound {
  static constexpr const char* kKind = "coordinator_found";
  std::string authority;  // Its fingerprint.
  std::string coordinator;
  std::string known;  // Where nobody answered.
  void visit(auto&& field) const {
    field("authority", authority), field("coordinator", coordinator), field("known", known);
  }
  std::string sentence() const;
};

struct CameAs {
  static constexpr const char* kKind = "came_as";
  std::string island;
  void visit(auto&& field) const { field("island", island); }
  std::string sentence() const;
};

/// What sync.codec = "auto" stands for.
struct CodecChosen {
  static constexpr const char* kKind = "codec_chosen";
  std::string codec;
  int64_t delay = 0;   // Inner steps.
  std::string choice;  // What the choice rests on, in words.
  void visit(auto&& field) const {
    field("codec", codec), field("delay", delay), field("choice", choice);
  }
  std::string sentence() const;
};

/// It begins in the middle of a run.
struct StateWanted {
  static constexpr const char* kKind = "state_wanted";
  int64_t step = 0;  // Of the run.
  void visit(auto&& field) const { field("step", step); }
  std::string sentence() const;
};

struct StateTaken {
  static constexpr const char* kKind = "state_taken";
  void visit(auto&&) const {}
  std::string sentence() const;
};

struct RoundsReplayed {
  static constexpr const char* kKind = "rounds_replayed";
  int64_t step = 0;
  std::string checkpoint;
  int64_t rounds = 0;  // After it.
  void visit(auto&& field) const {
    field("step", step), field("checkpoint", checkpoint), field("rounds", rounds);
  }
  std::string sentence() const;
};

/// Of a process that came to its end: with the results of the rounds that are on disk.
struct StepsComputedAgain {
  static constexpr const char* kKind = "steps_computed_again";
  int64_t steps = 0;
  std::string checkpoint;  // After which.
  int64_t rounds = 0;
  void visit(auto&& field) const {
    field("steps", steps), field("checkpoint", checkpoint), field("rounds", rounds);
  }
  std::string sentence() const;
};

/// It goes on from the newest commit instead.
struct NotComputedAgain {
  static constexpr const char* kKind = "not_computed_again";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

struct RoundComputedOtherwise {
  static constexpr const char* kKind = "round_computed_otherwise";
  int64_t round = 0;
  void visit(auto&& field) const { field("round", round); }
  std::string sentence() const;
};

struct MoreCheckpointsKept {
  static constexpr const char* kKind = "more_checkpoints_kept";
  int64_t kept = 0;
  int64_t asked = 0;
  void visit(auto&& field) const { field("kept", kept), field("asked", asked); }
  std::string sentence() const;
};

struct CheckpointVoid {
  static constexpr const char* kKind = "checkpoint_void";
  int64_t step = 0;       // Of the run.
  int64_t void_step = 0;  // Of the checkpoint.
  void visit(auto&& field) const { field("step", step), field("void_step", void_step); }
  std::string sentence() const;
};

struct WeightsNotFinite {
  static constexpr const char* kKind = "weights_not_finite";
  std::string model;
  std::string what;
  void visit(auto&& field) const { field("model", model), field("what", what); }
  std::string sentence() const;
};

// --- it trains ---

/// This island's part of what is averaged, because of a loss or gradient that is not finite.
struct StepLeftOut {
  static constexpr const char* kKind = "step_left_out";
  int64_t step = 0;
  std::string what;
  void visit(auto&& field) const { field("step", step), field("what", what); }
  std::string sentence() const;
};

struct PartLeftOut {
  static constexpr const char* kKind = "part_left_out";
  int64_t round = 0;
  std::string reason;
  void visit(auto&& field) const { field("round", round), field("reason", reason); }
  std::string sentence() const { return "warning: " + what(); }
  std::string what() const;
};

struct RoundsNotKept {
  static constexpr const char* kKind = "rounds_not_kept";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const { return "warning: " + reason; }
};

struct RecordsNotKept {
  static constexpr const char* kKind = "records_not_kept";
  std::string file;
  void visit(auto&& field) const { field("file", file); }
  std::string sentence() const;
};

struct StopWanted {
  static constexpr const char* kKind = "stop_wanted";
  void visit(auto&&) const {}
  std::string sentence() const;
};

struct JoinsAgain {
  static constexpr const char* kKind = "joins_again";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const { return reason + "; joining again"; }
};

/// The process ends with it.
struct IslandFailed {
  static constexpr const char* kKind = "island_failed";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const { return reason; }
};

// --- the launcher of several islands ---

/// Lines below a sentence, one for each process that ended badly.
std::string under(const std::vector<std::string>& causes);

struct IslandProcessLost {
  static constexpr const char* kKind = "island_process_lost";
  std::string island;
  std::string cause;
  std::string command;  // That brings it back.
  void visit(auto&& field) const {
    field("island", island), field("cause", cause), field("command", command);
  }
  std::string sentence() const;
};

/// It was killed; the launcher starts it again.
struct IslandProcessKilled {
  static constexpr const char* kKind = "island_process_killed";
  std::string island;
  int64_t signal = 0;  // 0: one of the island's processes was lost, and so it ended.
  int64_t step = 0;    // The island's last one.
  bool others_go_on = false;
  int64_t pause_s = 0;  // Before it is started again.
  void visit(auto&& field) const {
    field("island", island), field("signal", signal), field("step", step);
    field("others_go_on", others_go_on), field("pause_s", pause_s);
  }
  std::string sentence() const;
};

/// It trains again.
struct IslandProcessBack {
  static constexpr const char* kKind = "island_process_back";
  std::string island;
  double away_s = 0;  // Since it was killed.
  void visit(auto&& field) const { field("island", island), field("away_s", away_s); }
  std::string sentence() const;
};

struct CoordinatorRestarted {
  static constexpr const char* kKind = "coordinator_restarted";
  std::string cause;
  void visit(auto&& field) const { field("cause", cause); }
  std::string sentence() const;
};

struct RunEndsEarly {
  static constexpr const char* kKind = "run_ends_early";
  std::vector<std::string> causes;  // Who ended how.
  void visit(auto&& field) const { field("causes", causes); }
  std::string sentence() const;
};

/// At the end of a run: the others trained on.
struct IslandEndedBefore {
  static constexpr const char* kKind = "island_ended_before";
  std::string island;
  int64_t step = 0;
  int64_t last = 0;  // Step of the run.
  void visit(auto&& field) const {
    field("island", island), field("step", step), field("last", last);
  }
  std::string sentence() const;
};

}  // namespace atl::run
