#include "atoll/plan/training_memory.h"

#include <fmt/format.h>

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

}  // namespace

double state_bytes(const TrainingFit& fit) {
  const auto params = static_cast<double>(weights::num_parameters(fit.model));
  const bool is_sharded = fit.train.shard != "none";
  const double moments = (fit.train.optimizer == "sgd" ? 0.0 : 2.0) /
                         static_cast<double>(is_sharded ? fit.num_processes : 1);
  const double bytes = sizeof(float) * (2 + moments) * params;
  return fit.train.precision == "bf16" ? bytes + 2 * params : bytes;
}

double pass_bytes(const TrainingFit& fit, int64_t rows_at_a_time) {
  weights::ModelConfig kept = fit.model;
  double row = 0;
  if (fit.train.activation_checkpointing) {
    row = sizeof(float) *
          static_cast<double>(kept.num_layers * kept.hidden_size * fit.train.sequence_length);
    kept.num_layers = 1;
  }
  row += activation_bytes(kept, fit.train.sequence_length, fit.is_on_cpu());
  if (fit.train.precision == "bf16") row /= 2;
  return with_rows({}, row, rows_at_a_time).activations;
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
  std::string settings;
  const auto with = [&](std::string_view setting) {
    settings += fmt::format(" --{}", setting);
    return rows_that_fit(other, rows);
  };
  int64_t found = 0;
  if (!fit.train.activation_checkpointing) {
    other.train.activation_checkpointing = true;
    found = with("train.activation_checkpointing=true");
  }
  if (found == 0 && fit.num_processes > 1 && fit.train.shard == "none") {
    other.train.shard = "zero1";
    found = with("train.shard=zero1");
  }
  if (found == 0 && fit.train.precision != "bf16") {
    other.train.precision = "bf16";
    found = with("train.precision=bf16");
  }
  if (found > 0) {
    return text + fmt::format("this would fit:{} --train.micro_batch_rows={}", settings, found);
  }
  return text +
         "choose a smaller model (model.hidden_size, model.num_layers, ...), or shorter rows "
         "(train.sequence_length)";
}

}  // namespace atl::plan
