#pragma once
// What an island has on disk to go on from: its checkpoints, and the states that the rounds after
// the newest of them make (round_log.h).
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "atoll/run/config.h"
#include "atoll/run/round_log.h"

namespace atl::island {

struct Holding {
  std::filesystem::path checkpoint;
  int64_t checkpoint_step = 0;
  std::vector<run::LoggedRound> rounds;  // To replay from there, in this order.
  /// Hexadecimal; equal where two islands' published states are, however they came by them.
  std::string digest;
  std::vector<int64_t> applied;  // By fragment: the newest round in it; empty: not known.
  bool left = false;             // RunState::left of the checkpoint.
};

/// By step, of a run that ends with `num_at_end` rounds of `last_step`. Of the states that rounds
/// make only the last few: those that others may hold too. Throws InputError when a checkpoint's
/// state.json cannot be read.
std::map<int64_t, Holding> holdings_in(const std::filesystem::path& run_folder, int64_t last_step,
                                       size_t num_at_end);

/// train.keep_checkpoints, or as many more as resuming needs: islands that were some rounds apart
/// must have one in common.
int64_t checkpoints_to_keep(const run::RunConfig& config);

/// Where the rounds of a run directory are.
std::filesystem::path rounds_in(const std::filesystem::path& run_folder);

/// The run goes on from `step`, with these rounds of it: checkpoints and rounds beyond it are void.
/// Checkpoints are renamed to step-N.void, which nothing reads; returns their steps.
std::vector<int64_t> put_void_away(const std::filesystem::path& run_folder, int64_t step);

}  // namespace atl::island
