#pragma once
// When and how replicas agree.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/settings.h"

namespace atl::method {

struct SyncOptions {
  std::string method = "default";  // Resolved before training: run/config.h.
  int64_t sync_every = 20;
  double outer_lr = -1;  // Negative: the method's own.
  double outer_momentum = 0.9;
  std::string outer_optimizer = "nesterov";
  double outer_beta2 = 0.99;
  double outer_eps = 0.1;
  std::string outer_mean = "mean";
  double sign_pruning = 0;
  double outer_dropout = 0;
  int64_t num_fragments = 4;
  std::string fragment_pattern = "strided";
  int64_t fragment_sync_delay = 1;
  double fragment_update_alpha = 0;
  double error_feedback_decay = 0.95;
  double momentum_decay = 0.999;
  std::string codec = "default";
  double exchange_share = 1.0;
  bool layer_metrics = false;
  std::string outer_device = "cpu";

  /// The global copy and what the outer optimiser keeps lie where the parameters do.
  bool keeps_outer_near() const { return outer_device == "train"; }

  void visit(SettingList& list);
};

/// Throws UsageError when fields contradict each other, naming them.
void check(const SyncOptions& options);

/// Throws UsageError when the method has no use for the field of that name, which the user gave:
/// ignored, it would look as if it had none.
void check_used(const SyncOptions& options, std::string_view field);

}  // namespace atl::method
