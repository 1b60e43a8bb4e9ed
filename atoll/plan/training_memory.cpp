#include "atoll/plan/training_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "atoll/base/progress.h"
#include "atoll/plan/plan_memory.h"

namespace atl::plan {
namespace {

/// The most rows at a time up to `most`, of those that deal the share evenly to the processes,
/// whose pass fits beside the state; 0: none.
int64_t rows_that_fit(const TrainingFit& fit, int64_t most) {
  const double left = kUsableMemory * fit.memory_bytes - state_bytes(fit);
  for (int64_t rows = most; rows > 0; --rows) {
    const bool is_even = fit.rows % (rows * fit.num_processes) == 0;
    if (is_even && pass_bytes(fit, rows) <= left) return rows;
  }
  return 0;
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

double state_bytes(const TrainingFit& fit) {
  const PlannedMemory state = with_state({}, size_of(fit.model), fit.train, fit.num_processes);
  return state.parameters + state.gradients + state.moments;
}

double pass_bytes(const TrainingFit& fit, int64_t rows_at_a_time) {
  return pass_memory(fit.model, fit.train).bytes(rows_at_a_time);
}

std::string memory_advice(const TrainingFit& fit, bool was_tried) {
  const int64_t rows = fit.rows_at_a_time();
  std::string text = fmt::format(
      "{} row{} of {} tokens at a time need about {}, parameters, gradients and moments {}, and "
      "there are {}; ",
      rows, rows == 1 ? "" : "s", fit.train.sequence_length, format_bytes(pass_bytes(fit, rows)),
      format_bytes(state_bytes(fit)), format_bytes(fit.memory_bytes));
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
