#pragma once
// What one replica does between two syncs: steps, batch, inner optimiser, schedule.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/settings.h"

namespace atl::method {

struct TrainOptions {
  int64_t steps = 1000;
  int64_t batch_rows = 16;  // Of the global batch, all replicas together.
  int64_t micro_batch_rows = 0;
  int64_t sequence_length = 256;
  int64_t seed = 1;

  std::string optimizer = "adamw";
  double lr = 1e-3;
  double min_lr_ratio = 0.1;
  int64_t warmup_steps = -1;  // -1: a twentieth of the steps.
  int64_t rejoin_warmup = 10;
  std::string schedule = "cosine";
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double muon_momentum = 0.95;
  double muon_lr_ratio = 1.0;
  double weight_decay = 0.1;
  std::string weight_decay_mode = "constant";
  double grad_clip = 1.0;
  double z_loss = 1e-4;
  std::string teacher;  // A model's place; empty: none.
  double teacher_share = 0;

  int64_t log_every = 10;
  int64_t eval_every = 0;
  int64_t eval_rows = 64;
  int64_t checkpoint_every = 0;
  int64_t keep_checkpoints = 3;

  int64_t threads = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  bool activation_checkpointing = false;
  std::string shard = "none";
  double process_timeout = 60;

  void visit(SettingList& list);
};

/// Throws UsageError when another field's value leaves the field of that name, which the user gave,
/// without a use.
void check_used(const TrainOptions& options, std::string_view field);

/// Positions for which the loss makes logits at a time, at most those of the batch: 8 MB of them,
/// about what a core's caches keep; on other devices as many as make products large and launches
/// few. Not fewer than 512, however large the vocabulary: each slice reads the head and adds to its
/// gradient, which no cache keeps, and a short slice takes longer for that than for its products.
int64_t loss_slice(int64_t vocab_size, bool is_on_cpu);

/// train.warmup_steps, or what it stands for when it is -1.
int64_t warmup_steps(const TrainOptions& options);

/// What a replica multiplies the learning rate by that has begun in the middle of a run, with
/// moments of zero, before its update `num_updates` (0-based): linear from 1/rejoin_warmup to 1.
double rejoin_factor(const TrainOptions& options, int64_t num_updates);

/// The learning rate of optimiser step `step` (0-based): linear from lr/warmup_steps to lr during
/// the warm-up, then the schedule down to lr * min_lr_ratio at the last step.
double learning_rate(const TrainOptions& options, int64_t step);

/// The decoupled weight decay coefficient; the update subtracts lr * decay * parameter.
/// "inverse_steps" is 1/T with T the number of steps (Scaling Laws for DiLoCo, arXiv 2503.09799,
/// section 3).
double weight_decay(const TrainOptions& options);

}  // namespace atl::method
