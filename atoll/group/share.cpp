#include "atoll/group/share.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/group/sharded_passes.h"
#include "atoll/method/sharding.h"
#include "atoll/model/spilled_tensor.h"

namespace atl::group {
namespace {

SumsFor sums_for(const std::string& shard, bool changes_gradient) {
  if (changes_gradient) return SumsFor::kLeader;
  return shard == "none" ? SumsFor::kAll : SumsFor::kOwners;
}

Parts parts_for(const method::TrainOptions& options, bool changes_gradient, int64_t size,
                int64_t num_processes) {
  if (options.shard != "zero3" || num_processes == 1) return equal_parts(size, num_processes);
  return {size, num_processes,
          method::leaders_share(method::moment_bytes(options), changes_gradient, num_processes)};
}

void require_shardable(const train::Learner& learner) {
  if (learner.stages().empty()) {
    throw UsageError(
        "train.shard = zero3 is for whole models; of an adapter, which is small, zero1 shards what "
        "there is");
  }
  if (!learner.parameters().device().is_cpu()) {
    throw UsageError(
        "train.shard = zero3 needs parameters in the CPU's memory (train.device = cpu); zero1 is "
        "for any device");
  }
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
             bool changes_gradient)
    : processes_(processes),
      learner_(learner),
      shard_(options.shard),
      values_P_(learner.parameters().values_P()),
      gradients_P_(learner.parameters().gradients_P()),
      parts_(parts_for(options, changes_gradient, values_P_.numel(), processes.size())),
      own_(is_sharded() ? parts_.of(processes.rank()) : Span{0, values_P_.numel()}),
      sums_(processes, gradients_P_, parts_, sums_for(shard_, changes_gradient)),
      passes_(make_passes()),
      optimizer_(train::make_inner_optimizer(
          options, is_sharded()
                       ? part_of(train::target_of(learner.parameters()), own_.first, own_.second)
                       : train::target_of(learner.parameters()))) {
  learner.set_watcher(passes_.get());
}

Share::~Share() { learner_.set_watcher(nullptr); }

std::unique_ptr<Passes> Share::make_passes() {
  const model::Parameters& parameters = learner_.parameters();
  if (!keeps_parts()) return std::make_unique<SummedPasses>(sums_, parameters, learner_.stages());
  require_shardable(learner_);
  return std::make_unique<ShardedPasses>(processes_, sums_, parameters, parts_, learner_.stages());
}

void Share::clear_gradients() { passes_->clear_gradients(); }

Share::Sums Share::add_gradients(std::span<const train::Batch> batches) {
  const auto share = share_of(batches, processes_.rank(), processes_.size());
  const double weight = 1 / static_cast<double>(processes_.size());
  const double own_loss = learner_.add_gradients(share, weight);
  passes_->end();
  const at::NoGradGuard no_grad;
  const at::Tensor sums = at::zeros({2}, at::kDouble);
  auto* const each = sums.mutable_data_ptr<double>();
  each[0] = own_loss * weight;
  if (owner_sums()) {
    const double norm = train::gradient_norm(gradients_P_.slice(0, own_.first, own_.second));
    each[1] = norm * norm;
  }
  processes_.sum(sums);
  return {.loss = each[0], .norm = std::sqrt(each[1])};
}

void Share::update(int64_t number, const train::StepOptions& options) {
  const at::NoGradGuard no_grad;
  const auto own = [&](const at::Tensor& x_P) { return x_P.slice(0, own_.first, own_.second); };
  const bool changes_gradient = sums_.who() == SumsFor::kLeader;
  if (changes_gradient && is_sharded()) {
    processes_.scatter_parts(gradients_P_, own(gradients_P_), parts_);
  } else if (changes_gradient) {
    processes_.broadcast(gradients_P_);
  }
  optimizer_->set_num_updates(number - 1);
  optimizer_->step(options);
  if (!is_sharded()) return;
  if (changes_gradient || !keeps_parts()) clear_gradients();  // Of the others' parts too.
  if (keeps_parts()) {
    processes_.gather_parts(own(values_P_), values_P_, parts_);
  } else {
    processes_.share_parts(values_P_, parts_);
  }
}

void Share::take_values() {
  if (keeps_parts()) {
    processes_.scatter_parts(values_P_, values_P_.slice(0, own_.first, own_.second), parts_);
  } else {
    processes_.broadcast(values_P_);
  }
}

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
    processes_.gather_parts(part_S, whole_P, parts_);
    if (processes_.rank() == 0) all.emplace_back(name, whole_P);
  }
  return all;
}

void Share::take_moments(const std::vector<std::pair<std::string, at::Tensor>>& moments) {
  size_t i = 0;
  for (const auto& [name, part_S] : this->moments()) {
    if (is_sharded()) {
      const bool leads = processes_.rank() == 0;
      processes_.scatter_parts(leads ? moments.at(i++).second : at::Tensor(), part_S, parts_);
    } else {
      processes_.broadcast(part_S);
    }
  }
}

}  // namespace atl::group
