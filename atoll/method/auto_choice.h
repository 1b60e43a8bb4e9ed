#pragma once
// sync.codec = "auto": the least compression under which the exchange hides behind training.
// LibTorch-free and pure: members that know the same measurements choose the same.
//
// Codecs are tried from exact to coarse, each with the shortest delay that hides it. Delay
// amplifies the error of compression (DeCo-SGD, arXiv 2507.17346), so the coarser a codec, the
// fewer steps it may travel before a coarser one is tried.
#include <cstdint>
#include <span>
#include <string>

#include "atoll/method/sync_options.h"
#include "atoll/weights/config.h"

namespace atl::method {

/// What one member measured before the first step.
struct Measured {
  double step_seconds = 0;     // Of one inner step.
  double round_seconds = 0;    // Of a round that carries next to nothing.
  double bits_per_second = 0;  // That it sends while a large round lasts.
};

/// What a round has to carry.
struct Load {
  int64_t largest_round = 0;  // Values: all parameters, or the largest fragment.
  int64_t num_rounds = 1;     // In a period: 1, or the number of fragments.
  int num_members = 1;
};

/// Of a run with these options. Throws UsageError: see make_fragments().
Load load_of(const SyncOptions& options, std::span<const weights::ParameterSpec> specs,
             int num_members);

/// The most that a member sends in a round, whatever is chosen: bytes of all values, exact.
double most_bytes(const SyncOptions& options, const Load& load);

struct Choice {
  std::string codec;
  int64_t delay = 0;            // Inner steps; for methods that send beside training.
  double exchange_seconds = 0;  // Of one round, as predicted for the slowest member.
  double stall_share = 0;       // Of the training time, as predicted.
};

/// The options with what was chosen in place of "auto".
SyncOptions with_choice(SyncOptions options, const Choice& choice);

/// "e3m0, fragment_sync_delay = 1 (...)": the choice and what it rests on, for the log.
std::string describe(const Choice& choice, std::span<const Measured> members);

/// The slowest link and the fastest step count. When nothing hides: the fewest bits and the longest
/// delay allowed.
Choice choose(const SyncOptions& options, const Load& load, std::span<const Measured> members);

}  // namespace atl::method
