#include "atoll/plan/training_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/progress.h"

namespace atl::plan {
namespace {

PlannedMemory state_of(const TrainingFit& fit) {
  return with_state(fit.kept, size_of(fit.model), fit.train, fit.num_processes);
}

TrainingFit follower_of(const TrainingFit& fit) {
  TrainingFit follower = fit;
  follower.kept = {};
  return follower;
}

/// Of all processes that share the memory.
double all_states(const TrainingFit& fit) {
  const auto others = static_cast<double>(fit.local_processes - 1);
  return static_cast<double>(fit.local_islands) *
         (state_bytes(fit) + others * state_bytes(follower_of(fit)));
}
double all_passes(const TrainingFit& fit, int64_t rows) {
  return static_cast<double>(fit.local_islands * fit.local_processes) * pass_bytes(fit, rows);
}

/// The most rows at a time up to `most`, of those that deal the share evenly to the processes,
/// whose pass fits beside the state; 0: none.
int64_t rows_that_fit(const TrainingFit& fit, int64_t most) {
  const double left = kUsableMemory * fit.memory_bytes - all_states(fit);
  for (int64_t rows = most; rows > 0; --rows) {
    const bool is_even = fit.rows % (rows * fit.num_processes) == 0;
    if (is_even && all_passes(fit, rows) <= left) return rows;
  }
  return 0;
}

/// " for 2 islands of 4 processes"
std::string for_whom(const TrainingFit& fit) {
  std::string text;
  if (fit.local_islands > 1) text = fmt::format("{} islands", fit.local_islands);
  if (fit.local_processes > 1) {
    text += fmt::format("{}{} processes", text.empty() ? "" : " of ", fit.local_processes);
  }
  return text.empty() ? text : " for " + text;
}

/// Those that leave each process less, from the least on.
std::vector<std::string> stronger_shards(const TrainingFit& fit) {
  if (fit.num_processes == 1 || fit.train.optimizer == "muon") return {};
  std::vector<std::string> shards = {"none", "zero1"};
  if (fit.is_on_cpu()) shards.emplace_back("zero3");
  const auto own = std::ranges::find(shards, fit.train.shard);
  if (own == shards.end()) return {};
  return {own + 1, shards.end()};
}

/// The settings that differ, as words of a command.
std::string changed_words(const method::TrainOptions& from, const method::TrainOptions& to) {
  std::string words;
  if (to.activation_checkpointing != from.activation_checkpointing) {
    words += " --train.activation_checkpointing=true";
  }
  if (to.shard != from.shard) words += " --train.shard=" + to.shard;
  if (to.precision != from.precision) words += " --train.precision=" + to.precision;
  return words;
}

}  // namespace

TrainingFit fit_of_leader(const weights::ModelConfig& model, const method::TrainOptions& train,
                          const method::SyncOptions& sync, int64_t num_islands,
                          int64_t num_processes) {
  method::SyncOptions known = sync;
  if (known.codec == "auto") known.codec = "fp32";  // It is chosen when the links are known.
  return {
      .model = model,
      .train = train,
      .rows = train.batch_rows / num_islands,
      .num_processes = num_processes,
      .kept = method_memory(size_of(model).params, known, static_cast<int>(num_islands), train)};
}

double state_bytes(const TrainingFit& fit) {
  const PlannedMemory state = state_of(fit);
  return fit.is_on_cpu() ? state.device - state.checkpoint : state.device;
}

double pass_bytes(const TrainingFit& fit, int64_t rows_at_a_time) {
  return pass_memory(fit.model, fit.train).bytes(rows_at_a_time);
}

void require_memory(const TrainingFit& fit) {
  // Activations, and what a round has at a time, are estimates.
  const double sure = all_states(follower_of(fit));
  const double about = all_states(fit) - sure + all_passes(fit, fit.rows_at_a_time());
  if (sure + 0.7 * about <= fit.memory_bytes) return;
  throw InputError(
      fmt::format("this machine has too little memory{}: {}", for_whom(fit), memory_advice(fit)));
}

std::string memory_advice(const TrainingFit& fit, bool was_tried) {
  const int64_t rows = fit.rows_at_a_time();
  const PlannedMemory state = state_of(fit);
  std::string text = fmt::format(
      "{} row{} of {} tokens at a time need about {}, parameters, gradients{} {}, and "
      "there are {}; ",
      rows, rows == 1 ? "" : "s", fit.train.sequence_length, format_bytes(all_passes(fit, rows)),
      state.outer + state.exchange > 0 ? ", moments and what the method keeps" : " and moments",
      format_bytes(all_states(fit)), format_bytes(fit.memory_bytes));
  const int64_t fewer = rows_that_fit(fit, was_tried ? rows / 2 : rows - 1);
  if (fewer > 0) return text + fmt::format("fewer would fit: --train.micro_batch_rows={}", fewer);
  TrainingFit other = fit;
  int64_t found = 0;
  const auto try_with = [&](std::string& setting, const std::string& value) {
    if (found > 0) return;
    setting = value;
    found = rows_that_fit(other, rows);
  };
  if (!fit.train.activation_checkpointing) {
    other.train.activation_checkpointing = true;
    found = rows_that_fit(other, rows);
  }
  for (const std::string& shard : stronger_shards(fit)) try_with(other.train.shard, shard);
  if (fit.train.precision != "bf16") try_with(other.train.precision, "bf16");
  if (found > 0) {
    return text + fmt::format("this would fit:{} --train.micro_batch_rows={}",
                              changed_words(fit.train, other.train), found);
  }
  return text +
         "choose a smaller model (model.hidden_size, model.num_layers, ...), or shorter rows "
         "(train.sequence_length)";
}

}  // namespace atl::plan
