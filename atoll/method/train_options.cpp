#include "atoll/method/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "atoll/base/error.h"

namespace atl::method {
namespace {

/// On what a replica computes, and how.
void add_machine(TrainOptions& options, SettingList& list) {
  list.add("threads", options.threads, "CPU threads of this island; 0 = all cores",
           {.min = 0, .max = 4096});
  list.local();
  list.add("device", options.device, "where this island computes: cpu, cuda, cuda:1, ...");
  list.local();
  list.add("precision", options.precision,
           "of activations and products; bf16: parameters, their gradients and moments stay fp32",
           {"fp32", "bf16"});
  list.unsaid_if(options.precision == "fp32");
  list.add("activation_checkpointing", options.activation_checkpointing,
           "keep what each layer reads alone, and compute the rest again on the way back: a third "
           "more work, a fraction of the memory");
  list.local();
  list.add("shard", options.shard,
           "an island of several processes: none, each has all of the optimiser's moments; zero1, "
           "each has those of its part of the parameters and updates that part; zero3, it keeps no "
           "other parameters and gradients either, but for process 0, which has all parameters",
           {"none", "zero1", "zero3"});
  list.local();
  list.add("process_timeout", options.process_timeout,
           "seconds that an island's processes wait for one that has not come, or gives no sign "
           "of life",
           {.min = 5, .max = 1e6});
  list.local();
}

}  // namespace

void TrainOptions::visit(SettingList& list) {
  list.section("train", "one replica's inner training");
  list.add("steps", steps, "inner steps in the whole run", {.min = 1});
  list.add("batch_rows", batch_rows, "rows in a step's global batch, all islands together",
           {.min = 1});
  list.add("micro_batch_rows", micro_batch_rows,
           "rows per forward pass on one island; 0 = its whole share", {.min = 0});
  list.add("sequence_length", sequence_length, "tokens in a row", {.min = 2});
  list.add("seed", seed, "of the initial parameters and the order of the data", {.min = 0});
  list.add("optimizer", optimizer,
           "inner optimiser; muon: matrices inside the layers, AdamW the rest",
           {"adamw", "muon", "sgd"});
  list.add("lr", lr, "peak inner learning rate", {.min = 0, .max = 1e3});
  list.add("min_lr_ratio", min_lr_ratio, "the cosine ends at lr times this", {.min = 0, .max = 1});
  list.add("warmup_steps", warmup_steps, "linear warm-up; -1 = a twentieth of the steps",
           {.min = -1});
  list.add(
      "rejoin_warmup", rejoin_warmup,
      "the same for an island that joins in the middle, whose moments are zero: its first steps",
      {.min = 0});
  list.add("schedule", schedule, "after the warm-up", {"cosine", "constant"});
  list.add("beta1", beta1, "AdamW: decay of the mean", {.min = 0, .max = 0.99999});
  list.add("beta2", beta2, "AdamW: decay of the mean square", {.min = 0, .max = 0.9999999});
  list.add("eps", eps, "AdamW: added to the root of the mean square", {.min = 0, .max = 1});
  list.add("muon_momentum", muon_momentum, "Muon: decay of the mean (Nesterov)",
           {.min = 0, .max = 0.99999});
  list.add(
      "muon_lr_ratio", muon_lr_ratio,
      "Muon: learning rate of the matrices relative to lr; at 1 updates are as large as AdamW's",
      {.min = 0, .max = 1e3});
  list.add("weight_decay", weight_decay, "decoupled, on matrices only (not on norm weights)",
           {.min = 0, .max = 10});
  list.add("weight_decay_mode", weight_decay_mode,
           "constant: weight_decay as given; inverse_steps: 1/steps instead",
           {"constant", "inverse_steps"});
  list.add("grad_clip", grad_clip, "largest norm of the gradient; 0 = no clipping", {.min = 0});
  list.add("z_loss", z_loss, "weight of the squared log-partition (PaLM); 0 = off",
           {.min = 0, .max = 1});
  list.add("teacher_share", teacher_share,
           "share of the loss that is the divergence from train.teacher's predictions; the cross "
           "entropy is the rest",
           {.min = 0, .max = 1});
  list.add("teacher", teacher, "a model of the same tokenizer from which this island learns");
  list.local();
  list.add("log_every", log_every, "steps between lines of metrics.jsonl", {.min = 1});
  list.add("eval_every", eval_every, "steps between validations; 0 = at the end only", {.min = 0});
  list.add("eval_rows", eval_rows, "validation rows (fewer if the store has fewer)", {.min = 1});
  list.add("checkpoint_every", checkpoint_every, "steps between checkpoints; 0 = at the end only",
           {.min = 0});
  list.add("keep_checkpoints", keep_checkpoints,
           "older checkpoints are deleted, as far as resuming does not need them; 0 = keep all",
           {.min = 0});
  add_machine(*this, list);
}

void check_used(const TrainOptions& options, std::string_view field) {
  struct Use {
    std::string_view field;
    std::string_view other;
    const std::string& value;  // Of the other.
    std::vector<std::string_view> wanted;
  };
  const std::string& optimizer = options.optimizer;
  const Use uses[] = {
      {"beta1", "optimizer", optimizer, {"adamw", "muon"}},
      {"beta2", "optimizer", optimizer, {"adamw", "muon"}},
      {"eps", "optimizer", optimizer, {"adamw", "muon"}},
      {"muon_momentum", "optimizer", optimizer, {"muon"}},
      {"muon_lr_ratio", "optimizer", optimizer, {"muon"}},
      {"min_lr_ratio", "schedule", options.schedule, {"cosine"}},
      {"weight_decay", "weight_decay_mode", options.weight_decay_mode, {"constant"}},
  };
  for (const Use& use : uses) {
    if (use.field != field || std::ranges::count(use.wanted, use.value) > 0) continue;
    throw UsageError(
        fmt::format("train.{} has no effect with train.{} = '{}'; it is for {}; leave it out, or "
                    "change train.{}",
                    field, use.other, use.value, fmt::join(use.wanted, ", "), use.other));
  }
}

int64_t loss_slice(int64_t vocab_size, bool is_on_cpu) {
  constexpr int64_t kLeast = 512;
  const int64_t elements = is_on_cpu ? int64_t{1} << 21 : int64_t{1} << 26;
  return std::max(elements / vocab_size, kLeast);
}

int64_t warmup_steps(const TrainOptions& options) {
  return options.warmup_steps >= 0 ? options.warmup_steps : options.steps / 20;
}

double learning_rate(const TrainOptions& options, int64_t step) {
  const int64_t warmup = warmup_steps(options);
  if (step < warmup) {
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (options.schedule == "constant") return options.lr;
  const int64_t decay_steps = std::max<int64_t>(1, options.steps - warmup);
  const double progress = static_cast<double>(step - warmup + 1) / static_cast<double>(decay_steps);
  const double low = options.lr * options.min_lr_ratio;
  return low + (options.lr - low) * 0.5 *
                   (1 + std::cos(std::numbers::pi * std::clamp(progress, 0.0, 1.0)));
}

double rejoin_factor(const TrainOptions& options, int64_t num_updates) {
  if (num_updates >= options.rejoin_warmup) return 1;
  return static_cast<double>(num_updates + 1) / static_cast<double>(options.rejoin_warmup);
}

double weight_decay(const TrainOptions& options) {
  if (options.weight_decay_mode == "constant") return options.weight_decay;
  return 1.0 / static_cast<double>(options.steps);
}

}  // namespace atl::method
