#pragma once
// Layers of experts (Shazeer et al. 2017, arXiv 1701.06538): a router sends each token to a few of
// many MLPs and adds up what they say, each times its weight. On a CPU a token's result is the same
// sum in the same order whichever tokens are read with it.
//
// Shapes: M = tokens, C = hidden size, E = experts, K = experts per token.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace atl::model {

struct Routing {
  at::Tensor probabilities_ME;  // The router's softmax.
  at::Tensor experts_MK;        // The likeliest, int64,
  at::Tensor weights_MK;        // and what each counts.
};

/// `normalises`: a token's weights add up to 1; else they are its experts' probabilities.
Routing route(const at::Tensor& logits_ME, int64_t experts_per_token, bool normalises);

/// The tokens' results (M, C); `expert` gives those of the tokens that one expert reads.
at::Tensor mix(const Routing& routing, const at::Tensor& x_MC,
               const std::function<at::Tensor(int64_t expert, const at::Tensor& x)>& expert);

/// E sum f_e P_e: f_e tokens of a token that expert e reads (K in all), P_e its mean probability
/// (Fedus et al. 2021, arXiv 2101.03961, equation 4, in transformers' scale). K where all are read
/// equally, and more the less they are.
at::Tensor balance_loss(const Routing& routing);

/// What layers add to the training loss besides what they compute.
struct LayerLosses {
  std::vector<at::Tensor> balance;  // Scalars with autograd, of each layer with experts.
};

}  // namespace atl::model
