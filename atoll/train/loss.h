#pragma once
// The training loss and its gradient in one go. Logits exist only for a slice of the tokens at a
// time and turn into their own gradient in place, so the B x T x V array of more tokens than a
// slice has is never held.
//
// Shapes: B = rows, T = tokens per row; P = all parameters.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "atoll/model/model.h"

namespace atl::train {

struct LossOptions {
  /// Adds z_loss * log(Z)^2, Z the softmax denominator, which keeps logits from drifting
  /// (PaLM, Chowdhery et al. 2022, section 5).
  double z_loss = 0;
  /// Factor of the gradient, e.g. this micro-batch's share of the step.
  double scale = 1;
  /// A model of the same vocabulary, on the same device, from which to learn (Hinton et al. 2015):
  /// this share of the loss, from 0 to 1, is the divergence of the model's predictions from its,
  /// KL(teacher || model); the cross entropy is the rest. Null, and 0: none.
  const model::Model* teacher = nullptr;
  double teacher_share = 0;
};

/// Means over the targets that count, as FP32 scalars on the model's device; not multiplied by
/// LossOptions::scale.
struct Loss {
  at::Tensor cross_entropy;  // In nats per token.
  at::Tensor divergence;     // From the teacher, likewise; undefined without one.
  at::Tensor total;          // Their sum, each times its share, + z-loss.
};

/// Forward and backward: adds scale x d(total)/dP to the model's gradients, and where the model has
/// experts that of router_aux_loss times the mean of their layers' balance_loss(), over all tokens.
/// targets_BT (int64) holds the token to predict at each position; data::kIgnoredTarget (-100)
/// leaves it out. The model must have been made for training. Nothing is read back from the device
/// but how many tokens each expert reads.
Loss accumulate_gradients(model::Model& model, const at::Tensor& inputs_BT,
                          const at::Tensor& targets_BT, const LossOptions& options);

/// The loss of hidden states behind the final norm by a head that stays as it is. A defined
/// dhidden_BTC, contiguous as hidden_BTC is, gets scale x d(total)/d(hidden). Without a teacher.
Loss head_gradient(const model::Model& model, const at::Tensor& hidden_BTC,
                   const at::Tensor& targets_BT, const LossOptions& options,
                   const at::Tensor& dhidden_BTC);

/// The same loss without gradients, and without a teacher.
Loss evaluate_loss(const model::Model& model, const at::Tensor& inputs_BT,
                   const at::Tensor& targets_BT, const LossOptions& options);

}  // namespace atl::train
