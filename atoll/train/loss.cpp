#include "atoll/train/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/data/batches.h"
#include "atoll/method/train_options.h"
#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/matmul.h"
#include "atoll/model/operations.h"
#include "atoll/model/page_tensor.h"

namespace atl::train {
namespace {

/// From whom to learn, beside the targets.
struct Teacher {
  const model::Model* model = nullptr;
  double share = 0;
  at::Tensor hidden_MC;

  bool is_there() const { return model != nullptr; }
};

struct Sums {
  at::Tensor losses_M;       // Cross entropy per position, 0 where the target is ignored.
  at::Tensor squares_M;      // log(Z)^2, likewise.
  at::Tensor divergences_M;  // From the teacher; undefined without one.

  Sums slice(int64_t begin, int64_t size) const {
    const auto part = [&](const at::Tensor& all_M) {
      return all_M.defined() ? all_M.narrow(0, begin, size) : all_M;
    };
    return {part(losses_M), part(squares_M), part(divergences_M)};
  }
};

/// softmax_loss() for any device: fills the slices of `sums` and, in place of the FP32 logits or in
/// BF16 in dlogits_MV, gradients of the sum over positions divided by `count`. With the teacher's
/// log-probabilities, if there is one.
void softmax_loss(const at::Tensor& logits_MV, const at::Tensor& targets_M, const at::Tensor& count,
                  model::SoftmaxLoss options, const at::Tensor& teacher_MV, double teacher_share,
                  const Sums& sums, const at::Tensor& dlogits_MV) {
  const at::Tensor& losses_M = sums.losses_M;
  const at::Tensor& squares_M = sums.squares_M;
  if (logits_MV.is_cpu() && !teacher_MV.defined()) {
    options.scale /= count.item<float>();
    const auto fill = [&]<typename T>(T* dlogits) {
      model::softmax_loss({logits_MV.size(0), logits_MV.size(1)},
                          logits_MV.mutable_data_ptr<float>(), targets_M.const_data_ptr<int64_t>(),
                          options, losses_M.mutable_data_ptr<float>(),
                          squares_M.mutable_data_ptr<float>(), dlogits);
    };
    if (dlogits_MV.scalar_type() == at::kFloat) {
      fill(dlogits_MV.mutable_data_ptr<float>());
    } else {
      fill(dlogits_MV.mutable_data_ptr<c10::BFloat16>());
    }
    return;
  }
  if (!teacher_MV.defined()) {
    model::composite::softmax_loss(logits_MV, targets_M, count, options, losses_M, squares_M);
    if (options.scale != 0 && !dlogits_MV.is_same(logits_MV)) dlogits_MV.copy_(logits_MV);
    return;
  }
  const at::Tensor counts_M = targets_M >= 0;
  const at::Tensor index_M1 = targets_M.clamp_min(0).unsqueeze(1);
  const at::Tensor log_partition_M = logits_MV.logsumexp(1);
  const at::Tensor loss_M = log_partition_M - logits_MV.gather(1, index_M1).squeeze(1);
  losses_M.copy_(loss_M.masked_fill(~counts_M, 0));
  squares_M.copy_(log_partition_M.square().masked_fill(~counts_M, 0));
  at::Tensor wanted_MV = teacher_MV.exp();
  {
    const at::Tensor apart_MV = (teacher_MV - logits_MV).add_(log_partition_M.unsqueeze(1));
    sums.divergences_M.copy_(apart_MV.mul_(wanted_MV).sum(1).masked_fill(~counts_M, 0));
  }
  if (options.scale == 0) return;
  const at::Tensor share_M = counts_M * (options.scale / count);
  // From here on logits_MV holds its gradient.
  logits_MV.sub_(log_partition_M.unsqueeze(1)).exp_();
  logits_MV.mul_((share_M * (log_partition_M * (2 * options.z_loss) + 1)).unsqueeze(1));
  logits_MV.scatter_add_(1, index_M1, share_M.unsqueeze(1) * (teacher_share - 1));
  logits_MV.sub_(wanted_MV.mul_(share_M.unsqueeze(1) * teacher_share));
  if (!dlogits_MV.is_same(logits_MV)) dlogits_MV.copy_(logits_MV);
}

/// One that is stored is widened once, not for each slice.
at::Tensor matrix_of(const model::Weight& head) {
  return head.stored ? model::widened(*head.stored) : head.factor();
}

/// The head and the loss, a slice of the positions at a time. With a defined dhidden_MC also their
/// gradients: dhidden is written, the head's is added to. Logits are FP32 whatever hidden states
/// are: the loss is a small difference of large ones.
Sums head_loss(const model::Model& model, const at::Tensor& hidden_MC, const at::Tensor& targets_M,
               const at::Tensor& count, const model::SoftmaxLoss& options, const Teacher& teacher,
               const at::Tensor& dhidden_MC) {
  const model::Weight& head = model.head_VC();
  const double cap = model.config().logits_softcap;
  const int64_t positions = hidden_MC.size(0);
  const int64_t vocab = head.num_outputs();
  const int64_t slice = std::min(method::loss_slice(vocab, hidden_MC.is_cpu()), positions);
  const auto wide = hidden_MC.options().dtype(at::kFloat);
  const at::Tensor logits_MV = at::empty({slice, vocab}, wide);
  const bool is_narrow = hidden_MC.scalar_type() != at::kFloat;
  const at::Tensor dlogits_MV =
      is_narrow ? at::empty({slice, vocab}, hidden_MC.options()) : logits_MV;
  Sums sums{at::empty({positions}, wide), at::empty({positions}, wide), {}};
  if (teacher.is_there()) sums.divergences_M = at::empty({positions}, wide);
  const at::Tensor head_VC = dhidden_MC.defined() ? matrix_of(head) : at::Tensor();
  const bool learns = dhidden_MC.defined() && head.grad.defined();
  if (learns) model::make_room_for(head.grad);
  for (int64_t begin = 0; begin < positions; begin += slice) {
    const int64_t size = std::min(slice, positions - begin);
    const at::Tensor part_MC = hidden_MC.narrow(0, begin, size);
    at::Tensor part_MV = logits_MV.narrow(0, 0, size);
    const at::Tensor dpart_MV = is_narrow ? dlogits_MV.narrow(0, 0, size) : part_MV;
    if (head_VC.defined()) {
      model::matmul(part_MV, part_MC, head_VC.t());
    } else {
      model::linear_into(part_MV, head, part_MC);
    }
    at::Tensor capped_MV;  // Over the cap.
    if (cap > 0) {
      part_MV.div_(cap).tanh_();
      if (dhidden_MC.defined()) capped_MV = part_MV.clone();
      part_MV.mul_(cap);
    }
    at::Tensor teacher_MV;
    if (teacher.is_there()) {
      const at::Tensor logits = teacher.model->logits(teacher.hidden_MC.narrow(0, begin, size));
      teacher_MV = at::log_softmax(logits, 1);
    }
    softmax_loss(part_MV, targets_M.narrow(0, begin, size), count, options, teacher_MV,
                 teacher.share, sums.slice(begin, size), dpart_MV);
    if (!dhidden_MC.defined()) continue;
    if (cap > 0) dpart_MV.mul_(capped_MV.square_().neg_().add_(1));
    model::matmul(dhidden_MC.narrow(0, begin, size), dpart_MV, head_VC);
    if (!learns) continue;
    model::matmul(head.grad, dpart_MV.t(), part_MC, /*accumulates=*/true);
  }
  return sums;
}

/// How many targets count, a scalar on their device.
at::Tensor count_targets(const at::Tensor& targets_M) {
  return (targets_M >= 0).sum().clamp_min(1).to(at::kFloat);
}

Loss mean(const Sums& sums, const at::Tensor& count, const LossOptions& options) {
  // Sums of many small terms: in double, so that the order of adding does not show.
  const auto mean = [&](const at::Tensor& all_M) {
    return (all_M.sum(at::kDouble) / count).to(at::kFloat);
  };
  Loss loss{.cross_entropy = mean(sums.losses_M), .divergence = {}, .total = {}};
  loss.total = loss.cross_entropy + mean(sums.squares_M) * options.z_loss;
  if (!sums.divergences_M.defined()) return loss;
  loss.divergence = mean(sums.divergences_M);
  loss.total = loss.total + (loss.divergence - loss.cross_entropy) * options.teacher_share;
  return loss;
}

/// The mean over layers, times its weight.
at::Tensor balance_loss(const model::Model& model, const model::LayerLosses& losses) {
  return at::stack(losses.balance).mean() * model.config().router_aux_loss;
}

}  // namespace

Loss accumulate_gradients(model::Model& model, const at::Tensor& inputs_BT,
                          const at::Tensor& targets_BT, const LossOptions& options) {
  ATOLL_CHECK(model.parameters().trains());
  ATOLL_CHECK(inputs_BT.sizes() == targets_BT.sizes());
  const at::Tensor targets_M = targets_BT.reshape(-1);
  at::Tensor hidden_BTC;
  at::Tensor balance;
  {
    const at::AutoGradMode with_graph(true);
    const bool balances = model.config().router_aux_loss > 0;
    model::LayerLosses losses;
    hidden_BTC = model.hidden_BTC(inputs_BT, balances ? &losses : nullptr);
    if (balances) balance = balance_loss(model, losses);
  }
  const at::NoGradGuard no_grad;
  const at::Tensor count = count_targets(targets_M);
  const at::Tensor hidden_MC = hidden_BTC.detach().view({-1, hidden_BTC.size(2)});
  const at::Tensor dhidden_MC = at::empty_like(hidden_MC);
  const model::SoftmaxLoss kernel{static_cast<float>(options.z_loss),
                                  static_cast<float>(options.scale)};
  Teacher teacher;
  if (options.teacher != nullptr) {
    ATOLL_CHECK(options.teacher->config().vocab_size == model.config().vocab_size);
    const at::Tensor wanted_BTC = options.teacher->hidden_BTC(inputs_BT);
    teacher = {.model = options.teacher,
               .share = options.teacher_share,
               .hidden_MC = wanted_BTC.reshape({-1, wanted_BTC.size(2)})};
  }
  const Sums sums = head_loss(model, hidden_MC, targets_M, count, kernel, teacher, dhidden_MC);
  torch::autograd::variable_list outputs{hidden_BTC};
  torch::autograd::variable_list gradients{dhidden_MC.view(hidden_BTC.sizes())};
  if (balance.defined()) {
    outputs.push_back(balance);
    gradients.push_back(at::full_like(balance, options.scale));
  }
  torch::autograd::backward(outputs, gradients);
  // Autograd ends there; no tensor that has a gradient goes into the embedding.
  if (auto* const watcher = model.decoder().watcher()) watcher->back(0);
  return mean(sums, count, options);
}

Loss head_gradient(const model::Model& model, const at::Tensor& hidden_BTC,
                   const at::Tensor& targets_BT, const LossOptions& options,
                   const at::Tensor& dhidden_BTC) {
  const at::NoGradGuard no_grad;
  const at::Tensor targets_M = targets_BT.reshape(-1);
  const at::Tensor count = count_targets(targets_M);
  const model::SoftmaxLoss kernel{static_cast<float>(options.z_loss),
                                  dhidden_BTC.defined() ? static_cast<float>(options.scale) : 0.0F};
  const auto rows = [&](const at::Tensor& x) {
    return x.defined() ? x.view({-1, hidden_BTC.size(2)}) : x;
  };
  const Sums sums =
      head_loss(model, rows(hidden_BTC), targets_M, count, kernel, {}, rows(dhidden_BTC));
  return mean(sums, count, options);
}

Loss evaluate_loss(const model::Model& model, const at::Tensor& inputs_BT,
                   const at::Tensor& targets_BT, const LossOptions& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor targets_M = targets_BT.reshape(-1);
  const at::Tensor hidden_BTC = model.hidden_BTC(inputs_BT);
  const model::SoftmaxLoss kernel{static_cast<float>(options.z_loss), 0};
  const at::Tensor count = count_targets(targets_M);
  const at::Tensor hidden_MC = hidden_BTC.view({-1, hidden_BTC.size(2)});
  const Sums sums = head_loss(model, hidden_MC, targets_M, count, kernel, {}, {});
  return mean(sums, count, options);
}

}  // namespace atl::train
