#pragma once
// What an island says while it trains and when it ends. The same record feeds the progress line,
// the coordinator's heartbeats and, as a line of JSON, the launcher's table. LibTorch-free.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/base/fields.h"

namespace atl::run {

/// In the message of an island that gives up for what only other settings change: to go on from the
/// last checkpoint would end the same way.
inline constexpr const char* kKeepsSettings = "a run keeps its settings";

/// Where the seconds of a process went from its first step on; the rest is small (records).
struct SecondsSpent {
  double computing = 0;  // Forward, backward, the inner optimiser's update.
  double handling = 0;   // The training thread's own part in rounds: snapshots, taking results.
  double waiting = 0;    // For rounds, or for rows to train on.
  double validation = 0;
  double checkpoints = 0;  // That training waited for them.

  void visit(auto&& field) {
    field("computing", computing), field("handling", handling), field("waiting", waiting);
    field("validation", validation), field("checkpoints", checkpoints);
  }
  bool operator==(const SecondsSpent&) const = default;
  SecondsSpent& operator+=(const SecondsSpent& other);
  /// Without validation and checkpoints.
  double training() const { return computing + handling + waiting; }
  /// The share of training that did not compute; 0 where there was none.
  double waiting_share() const;
};

struct Progress {
  int64_t step = 0;
  int64_t steps = 0;
  int64_t tokens = 0;  // Of the whole run.
  double loss = 0;
  std::optional<double> val_loss;  // Of the last validation.
  double lr = 0;
  double grad_norm = 0;
  double tokens_per_s = 0;  // Of this island.
  double seconds_left = 0;
  double stall_share = 0;
  int64_t abstained_rounds = 0;  // This island's part of them had weight 0.
  int64_t bytes_sent = 0;        // By this process, all that its transport carried.
  int64_t bytes_received = 0;
  int64_t member = 0;    // This island's number in the run.
  int64_t trained = 0;   // Units of data (swarm/leases.h) that it has trained on as that member.
  int64_t unit = 0;      // The last unit that it trained on.
  int64_t began_at = 0;  // The step at which this process began.
  SecondsSpent seconds;  // Of this process.

  void visit(auto&& field) {
    field("step", step), field("steps", steps), field("tokens", tokens), field("loss", loss);
    field("val_loss", val_loss, LeftOutWhenNew{});
    field("lr", lr), field("grad_norm", grad_norm), field("tokens_per_s", tokens_per_s);
    field("seconds_left", seconds_left), field("stall_share", stall_share);
    field("abstained_rounds", abstained_rounds, LeftOutWhenNew{});
    field("bytes_sent", bytes_sent), field("bytes_received", bytes_received);
    field("member", member), field("trained", trained), field("unit", unit);
    field("began_at", began_at), field("seconds", seconds);
  }
};

/// How it went. Fields as in `atoll train --json`.
struct Summary {
  std::string run;  // The run directory.
  int64_t steps = 0;
  int64_t tokens = 0;
  double train_loss = 0;
  double val_loss_start = 0;
  double val_loss_island = 0;  // This island's own parameters, before the last sync.
  double val_loss = 0;         // The global model.
  double tokens_per_s = 0;     // Of this island, validation and checkpoints left out.
  std::string digest;          // SHA-256 of the global parameters.
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  double stall_share = 0;          // Of the training time.
  double blocked_share = 0;        // Of the training time, waiting for a commit or for rows.
  double checkpoint_stall_ms = 0;  // The longest that one checkpoint held training up.
  int64_t num_parameters = 0;
  int64_t abstained_rounds = 0;  // Of this process, as in Progress.
  std::string method;            // sync.method, and what "default" and "auto" meant.
  std::string codec;
  int64_t fragment_sync_delay = 0;  // 0 where the method has none.
  int64_t steps_now = 0;            // Taken by this process; a resumed run has more in all.
  bool stopped = false;             // Ended early on request; resume by the same command.
  SecondsSpent seconds;             // Of this process.
  double away_seconds = 0;          // Killed and not back yet: of this no other figure knows.

  void visit(auto&& field) {
    field("run", run), field("steps", steps), field("tokens", tokens);
    field("train_loss", train_loss), field("val_loss_start", val_loss_start);
    field("val_loss_island", val_loss_island), field("val_loss", val_loss);
    field("tokens_per_s", tokens_per_s), field("digest", digest);
    field("bytes_sent", bytes_sent), field("bytes_received", bytes_received);
    field("stall_share", stall_share), field("blocked_share", blocked_share);
    field("checkpoint_stall_ms", checkpoint_stall_ms), field("num_parameters", num_parameters);
    field("abstained_rounds", abstained_rounds), field("method", method), field("codec", codec);
    field("fragment_sync_delay", fragment_sync_delay), field("steps_now", steps_now);
    field("stopped", stopped);
    // Points that an older version finished have none of these.
    field("seconds", seconds, MayLack{}), field("away_seconds", away_seconds, MayLack{});
  }
};

std::string to_json(const Progress& progress);
std::string to_json(const Summary& summary);
/// Throws InputError.
Summary summary_from_json(std::string_view text);

/// "step 120/400  loss 4.213  val 4.500  5.1k tok/s  wait 12 %  left 02:10".
std::string progress_line(const Progress& progress);

}  // namespace atl::run
