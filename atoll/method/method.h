#pragma once
// The methods in one table: which settings each has a use for, and what its rounds are like. Help,
// checks and every rule that depends on the method read it. LibTorch-free. A method is one file, an
// entry in this table and its constructor in methods.cpp.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/method/sync_options.h"

namespace atl::method {

/// What becomes of the values that a codec leaves out.
enum class LeftOut {
  kLost,       // The codec has to be dense.
  kKept,       // Each replica adds its own to what it sends next.
  kMomentum,   // The same, and they drive the method: its codec is a part of it.
  kBothSides,  // Replicas keep theirs, and the owner of each share the mean's.
};

struct Method {
  std::string_view name;
  std::string_view what;  // For the help.
  /// The fields of SyncOptions that it uses, besides those that are for all.
  std::vector<std::string_view> settings{};
  std::string_view codec = "fp32";  // sync.codec = "default" stands for it.
  double outer_lr = 0.7;            // A negative sync.outer_lr stands for it.
  LeftOut left_out = LeftOut::kLost;
  /// Codecs that are not exact are applied once, by the sender, whatever the number of members.
  bool encodes_once = false;
  bool reduces_gradients = false;  // Its rounds come before the inner step, not after it.
  bool is_late = false;            // A round's result is used one period after it was sent.
  bool is_for_one = false;         // One island, which agrees with nobody.
  bool takes_newcomers = false;    // A replica can be given the state in the middle of a run.
  bool goes_elastic = false;       // Rounds may be of any length, and come while training goes on.
  bool makes_signs = false;        // Of gradients: for inner SGD without clipping.
  /// Throws UsageError when its own settings contradict each other.
  void (*check)(const SyncOptions&) = [](const SyncOptions&) {};

  bool uses(std::string_view field) const;
  bool syncs_every_step() const { return !uses("sync_every"); }
  bool has_fragments() const { return uses("num_fragments"); }
  bool has_delay() const { return uses("fragment_sync_delay"); }
};

/// In the order of the help.
const std::vector<Method>& methods();

/// The names of those that are so.
std::vector<std::string_view> methods_that(const std::function<bool(const Method&)>& are_so);

/// The one that the options name; "default", which is not resolved yet, counts as diloco. Throws
/// UsageError when there is none.
const Method& method_of(const SyncOptions& options);

/// What `codec` stands for: "default" is the one that the method's paper uses, or fp32.
std::string codec_name(const SyncOptions& options);

/// What `outer_lr` stands for: a negative one is the one that the method's paper uses.
double outer_lr(const SyncOptions& options);

/// Rounds in a period: one for each fragment.
int64_t num_fragments(const SyncOptions& options);

/// Steps between two syncs of a parameter: sync_every, or 1 for methods that agree at every step.
int64_t period(const SyncOptions& options);

/// Inner steps for which an exchange may travel; 0: the method has no fragment_sync_delay.
int64_t max_delay(const SyncOptions& options);

/// Inner steps for which an exchange travels; 0 for methods that wait for theirs.
int64_t fragment_sync_delay(const SyncOptions& options);

/// Steps after which a round's result is used: with the next round, where the method is late.
int64_t delay(const SyncOptions& options);

/// How many steps two replicas can be apart at most, while they wait for each other's rounds.
int64_t max_steps_apart(const SyncOptions& options);

}  // namespace atl::method
