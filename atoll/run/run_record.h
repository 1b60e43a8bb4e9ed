#pragma once
// The records of a run, read again: where each island's time went and what its rounds sent, for
// atoll/laws. Of a run that is over or under way, of all its islands or of one. LibTorch-free.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/fields.h"
#include "atoll/laws/recorded_run.h"
#include "atoll/run/config.h"
#include "atoll/run/progress.h"

namespace atl::run {

inline constexpr double kMaxWhole = int64_t{1} << 53;

/// What simulations ask of a line of metrics.jsonl.
struct StepLine {
  int64_t step = 0;
  int64_t began_at = 0;
  SecondsSpent seconds;

  void visit(auto&& field) {
    field("step", step, UpTo{kMaxWhole}), field("began_at", began_at, UpTo{kMaxWhole});
    field("seconds", seconds, UpTo{1e12});
  }
};

/// And of one of rounds.jsonl.
struct RoundLine {
  int64_t step = 0;
  int64_t sent = 0;
  int64_t round = 0;
  int64_t fragment = 0;
  int64_t values = 0;
  std::string codec;
  std::vector<std::string> members;
  double bytes_sent = 0;
  double bytes_received = 0;
  double exchange_ms = 0;
  double prepare_ms = 0;

  void visit(auto&& field) {
    field("step", step, UpTo{kMaxWhole}), field("sent", sent, UpTo{kMaxWhole});
    field("round", round, UpTo{kMaxWhole}), field("fragment", fragment, UpTo{kMaxWhole});
    field("values", values, UpTo{kMaxWhole}), field("codec", codec), field("members", members);
    field("bytes_sent", bytes_sent, UpTo{1e18}),
        field("bytes_received", bytes_received, UpTo{1e18});
    field("exchange_ms", exchange_ms, UpTo{1e15}), field("prepare_ms", prepare_ms, UpTo{1e15});
  }
};

/// Read lines of those files. What follows the last line end is being written, or was when the run
/// was killed, and is passed over. Throw InputError naming `file`, the line and the field.
std::vector<StepLine> parse_steps(std::string_view text, const std::string& file);
std::vector<RoundLine> parse_rounds(std::string_view text, const std::string& file);

/// Of one island.
struct IslandRecord {
  std::string name;
  std::string where;  // For messages.
  std::vector<StepLine> steps;
  std::vector<RoundLine> rounds;
};

/// Whether that round of two members or more was an all-gather. Throws InputError when its codec is
/// none.
bool gathers(const IslandRecord& island, const RoundLine& line, const method::SyncOptions& options);

/// What all of them tell together. A member whose records are not here is taken to be like the
/// first of them. Throws InputError when that is no run of several islands with a round.
laws::RecordedRun recorded_run(const std::vector<IslandRecord>& islands,
                               const method::SyncOptions& options);

struct RunRecord {
  RunConfig config;
  std::vector<IslandRecord> islands;  // Those whose records are here.
  laws::RecordedRun run;
};

/// The records in `folder`: a run directory with island-*, or that of one island. Throws InputError
/// or UsageError (a config.toml that is none) saying which file is wrong, and how.
RunRecord read_run_record(const std::filesystem::path& folder);

}  // namespace atl::run
