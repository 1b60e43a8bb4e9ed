#include "atoll/model/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

namespace atl::model {

Routing route(const at::Tensor& logits_ME, int64_t experts_per_token, bool normalises) {
  Routing routing{
      .probabilities_ME = at::softmax(logits_ME, 1), .experts_MK = {}, .weights_MK = {}};
  std::tie(routing.weights_MK, routing.experts_MK) =
      routing.probabilities_ME.topk(experts_per_token, 1);
  if (normalises) routing.weights_MK = routing.weights_MK / routing.weights_MK.sum(1, true);
  return routing;
}

at::Tensor mix(const Routing& routing, const at::Tensor& x_MC,
               const std::function<at::Tensor(int64_t expert, const at::Tensor& x)>& expert) {
  const int64_t num_experts = routing.probabilities_ME.size(1);
  const int64_t experts_per_token = routing.experts_MK.size(1);
  const at::Tensor experts = routing.experts_MK.flatten();
  // Expert by expert, each one's tokens in their order.
  const at::Tensor order = std::get<1>(experts.sort(/*stable=*/true, 0, /*descending=*/false));
  const at::Tensor tokens = order.floor_divide(experts_per_token);
  const at::Tensor counts = experts.bincount({}, num_experts).to(at::kCPU);
  // Not by narrow(): its gradients would each be as large as the whole.
  const std::vector<at::Tensor> read = x_MC.index_select(0, tokens).split_with_sizes(
      {counts.const_data_ptr<int64_t>(), static_cast<size_t>(num_experts)});
  std::vector<at::Tensor> said;
  for (int64_t e = 0; e < num_experts; ++e) {
    const at::Tensor& mine = read[static_cast<size_t>(e)];
    if (mine.size(0) > 0) said.push_back(expert(e, mine));
  }
  const at::Tensor weights = routing.weights_MK.flatten().index_select(0, order);
  const at::Tensor weighted = at::cat(said) * weights.unsqueeze(1).to(x_MC.scalar_type());
  return at::zeros_like(x_MC).index_add(0, tokens, weighted);
}

at::Tensor balance_loss(const Routing& routing) {
  const int64_t num_experts = routing.probabilities_ME.size(1);
  const auto num_tokens = static_cast<double>(routing.probabilities_ME.size(0));
  const at::Tensor read_E =
      routing.experts_MK.flatten().bincount({}, num_experts).to(at::kFloat) / num_tokens;
  return (read_E * routing.probabilities_ME.mean(0)).sum() * num_experts;
}

}  // namespace atl::model
