#include "atoll/island/validation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/train/evaluate.h"
#include "atoll/train/unit_gradient.h"

namespace atl::island {
namespace {

constexpr int64_t kBatchRows = 8;

/// An adapter's model may have no room for more than training has at once, nor servers of its
/// layers.
int64_t batch_rows(const Materials& materials, const method::TrainOptions& options) {
  const bool has_bound = materials.adapter != nullptr && options.micro_batch_rows > 0;
  return has_bound ? std::min(kBatchRows, options.micro_batch_rows) : kBatchRows;
}

}  // namespace

Validation::Validation(Materials& materials, train::Learner& learner,
                       const method::TrainOptions& options, const Clock& clock,
                       run::TimeSpent& time, std::function<void()> before_change)
    : learner_(learner),
      rows_(materials.mixture, data::Split::kValidation, train::batch_options(options)),
      options_(options),
      batch_rows_(batch_rows(materials, options)),
      clock_(clock),
      time_(time),
      before_change_(std::move(before_change)) {}

void Validation::restore(double start, double island) {
  start_ = start;
  island_ = island;
}

void Validation::measure_start(const at::Tensor& global_P) {
  if (start_ < 0) start_ = measure(global_P);
}

void Validation::has_no_start() { start_ = std::numeric_limits<double>::quiet_NaN(); }

void Validation::measure_island() { island_ = measure(learner_.parameters().values_P()); }

void Validation::measure_global(const at::Tensor& global_P) { global_ = measure(global_P); }

double Validation::measure(const at::Tensor& parameters_P) {
  const at::Tensor& live_P = learner_.parameters().values_P();
  const bool is_live = parameters_P.is_same(live_P);
  const Time begin = clock_.now();
  const int64_t rows = std::min(options_.eval_rows, rows_.num_rows());
  if (!is_live) before_change_();
  const at::Tensor kept_P = is_live ? at::Tensor() : live_P.clone();
  if (!is_live) live_P.copy_(parameters_P);
  const auto of_batch = [&](const train::Batch& batch) { return learner_.cross_entropy(batch); };
  const auto go_back = [&] {
    if (!is_live) live_P.copy_(kept_P);
  };
  double loss = 0;
  try {
    loss = train::mean_loss(of_batch, rows_, options_.sequence_length, rows, batch_rows_);
  } catch (const InputError&) {  // What was learned may still be kept.
    go_back();
    throw;
  }
  go_back();
  time_.add(run::TimeSpent::On::kValidation, seconds(clock_.now() - begin));
  return loss;
}

}  // namespace atl::island
