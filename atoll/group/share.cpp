#include "atoll/group/share.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/model/spilled_tensor.h"

namespace atl::group {
namespace {

std::pair<int64_t, int64_t> updated_part(const Processes& processes, const at::Tensor& values_P,
                                         bool is_sharded) {
  if (!is_sharded) return {0, values_P.numel()};
  return processes.part(values_P.numel(), processes.rank());
}

}  // namespace

std::vector<train::Batch> share_of(std::span<const train::Batch> batches, int64_t rank,
                                   int64_t size) {
  const int64_t count = std::ssize(batches);
  const int64_t rows = batches.front().inputs_BT.size(0);
  std::vector<train::Batch> share;
  if (count % size == 0) {
    const int64_t each = count / size;
    const auto own = batches.subspan(static_cast<size_t>(rank * each), static_cast<size_t>(each));
    share.assign(own.begin(), own.end());
  } else if (rows % size == 0) {
    const int64_t each = rows / size;
    for (const train::Batch& batch : batches) {
      share.push_back({batch.inputs_BT.narrow(0, rank * each, each),
                       batch.targets_BT.narrow(0, rank * each, each)});
    }
  } else {
    throw UsageError(fmt::format(
        "an island's step has {} micro-batches of {} rows (train.batch_rows, swarm.replicas, "
        "train.micro_batch_rows), and neither can be dealt evenly to its {} processes",
        count, rows, size));
  }
  return share;
}

train::OptimizerTarget part_of(const train::OptimizerTarget& target, int64_t begin, int64_t end) {
  train::OptimizerTarget part{.values_P = target.values_P.slice(0, begin, end),
                              .gradients_P = target.gradients_P.slice(0, begin, end),
                              .decayed = {},
                              .hidden = {}};
  for (const auto& [first, last] : target.decayed) {
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(last, end);
    if (from < to) part.decayed.emplace_back(from - begin, to - begin);
  }
  return part;
}

Share::Share(Processes& processes, train::Learner& learner, const method::TrainOptions& options,
             bool owner_sums)
    : processes_(processes),
      learner_(learner),
      is_sharded_(options.shard != "none"),
      owner_sums_(owner_sums),
      values_P_(learner.parameters().values_P()),
      gradients_P_(learner.parameters().gradients_P()),
      own_(updated_part(processes, values_P_, is_sharded_)),
      optimizer_(train::make_inner_optimizer(
          options, is_sharded_
                       ? part_of(train::target_of(learner.parameters()), own_.first, own_.second)
                       : train::target_of(learner.parameters()))) {}

Share::Sums Share::add_gradients(std::span<const train::Batch> batches) {
  const auto share = share_of(batches, processes_.rank(), processes_.size());
  const double own_loss = learner_.add_gradients(share);
  const at::NoGradGuard no_grad;
  const double num_processes = static_cast<double>(processes_.size());
  gradients_P_.mul_(1 / num_processes);
  if (owner_sums_) {
    processes_.sum_to_owners(gradients_P_);
  } else {
    processes_.sum(gradients_P_);
  }
  const at::Tensor sums = at::zeros({2}, at::kDouble);
  auto* const each = sums.mutable_data_ptr<double>();
  each[0] = own_loss / num_processes;
  if (owner_sums_) {
    const double norm =
        at::linalg_vector_norm(gradients_P_.slice(0, own_.first, own_.second)).item<double>();
    each[1] = norm * norm;
  }
  processes_.sum(sums);
  return {.loss = each[0], .norm = std::sqrt(each[1])};
}

void Share::update(int64_t number, const train::StepOptions& options, bool has_gradient) {
  const at::NoGradGuard no_grad;
  if (has_gradient) processes_.broadcast(gradients_P_);
  optimizer_->set_num_updates(number - 1);
  optimizer_->step(options);
  if (!is_sharded_) return;
  gradients_P_.zero_();  // Of the others' parts too.
  processes_.share_parts(values_P_);
}

void Share::take_values() { processes_.broadcast(values_P_); }

std::vector<std::pair<std::string, at::Tensor>> Share::gather_moments(
    const std::filesystem::path& spill_folder) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& [name, part_S] : moments()) {
    at::Tensor whole_P;  // On the host, as checkpoints want it: a device may have no room for it.
    if (processes_.rank() == 0) {
      whole_P = spill_folder.empty()
                    ? at::empty(values_P_.sizes(), part_S.options().device(at::kCPU))
                    : model::spilled_tensor(spill_folder, values_P_.numel());
    }
    processes_.gather_parts(part_S, whole_P);
    if (processes_.rank() == 0) all.emplace_back(name, whole_P);
  }
  return all;
}

void Share::take_moments(const std::vector<std::pair<std::string, at::Tensor>>& moments) {
  size_t i = 0;
  for (const auto& [name, part_S] : this->moments()) {
    if (is_sharded_) {
      const bool leads = processes_.rank() == 0;
      processes_.scatter_parts(leads ? moments.at(i++).second : at::Tensor(), part_S);
    } else {
      processes_.broadcast(part_S);
    }
  }
}

}  // namespace atl::group
