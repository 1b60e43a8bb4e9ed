#include "atoll/kv_model/sensitivity.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "atoll/base/check.h"
#include "atoll/model/watched_attention.h"

namespace atl::kv_model {
namespace {

/// The first tokens: every later one attends to them; they are kept exact, and are no measure.
constexpr int64_t kFirst = 4;

/// The gradient of the summed loss with respect to hidden states, for tokens that the model draws.
at::Tensor drawn_gradient(const model::Model& model, const at::Tensor& hidden_TC,
                          const at::Generator& generator) {
  const at::NoGradGuard no_grad;
  at::Tensor shares_TV = model.logits(hidden_TC).softmax(-1);
  const at::Tensor drawn_T1 = shares_TV.multinomial(1, false, generator);
  shares_TV.scatter_add_(1, drawn_T1, -at::ones(drawn_T1.sizes(), shares_TV.options()));
  return shares_TV.matmul(model.head_VC().value.detach());
}

/// Keys and values of the first tokens as leaves of autograd, in the order of layers.
class Leaves {
 public:
  Leaves(const weights::ModelConfig& config, int64_t prefix)
      : prefix_(prefix),
        width_(config.num_kv_heads * config.head_size()),
        begin_(config.num_heads * config.head_size()) {}

  at::Tensor pass(const at::Tensor& qkv_1TF) {
    const at::Tensor leaf = qkv_1TF.narrow(1, 0, prefix_).detach().clone();
    leaf.set_requires_grad(true);
    leaves_.push_back(leaf);
    return at::cat({leaf, qkv_1TF.narrow(1, prefix_, qkv_1TF.size(1) - prefix_)}, 1);
  }

  /// Adds (L, C, C).
  void add_moments(const at::Tensor& keys_LCC, const at::Tensor& values_LCC) const {
    const at::NoGradGuard no_grad;
    for (size_t layer = 0; layer < leaves_.size(); ++layer) {
      const at::Tensor grad_TF = leaves_[layer].grad()[0].narrow(0, kFirst, prefix_ - kFirst);
      const auto moments = [&](int64_t begin) {
        const at::Tensor part_TC = grad_TF.narrow(1, begin, width_).contiguous();
        return part_TC.t().matmul(part_TC).to(at::kDouble);
      };
      keys_LCC[static_cast<int64_t>(layer)] += moments(begin_);
      values_LCC[static_cast<int64_t>(layer)] += moments(begin_ + width_);
    }
  }

 private:
  int64_t prefix_;
  int64_t width_;  // Of all keys of a token.
  int64_t begin_;
  std::vector<at::Tensor> leaves_;
};

}  // namespace

Sensitivity measure_sensitivity(model::Model& model, std::span<const std::vector<int64_t>> texts,
                                int64_t prefix, uint64_t seed, const std::function<void()>& done) {
  const weights::ModelConfig& config = model.config();
  ATOLL_CHECK(model.parameters().trains() && prefix > kFirst && !texts.empty());
  const int64_t width = config.num_kv_heads * config.head_size();
  const auto options = at::TensorOptions().dtype(at::kDouble);
  Sensitivity found{.keys_LCC = at::zeros({config.num_layers, width, width}, options),
                    .values_LCC = at::zeros({config.num_layers, width, width}, options)};
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const std::vector<int64_t>& ids : texts) {
    ATOLL_CHECK(std::ssize(ids) > prefix);
    Leaves leaves(config, prefix);
    const at::Tensor tokens_1T = at::tensor(ids, at::kLong).unsqueeze(0);
    const model::WatchedAttention watched(
        [&](int64_t, const at::Tensor& qkv_1TF) { return leaves.pass(qkv_1TF); });
    const at::Tensor hidden_1TC = model.hidden_BTC(tokens_1T);
    const at::Tensor suffix_TC = hidden_1TC[0].narrow(0, prefix, std::ssize(ids) - prefix);
    suffix_TC.backward(drawn_gradient(model, suffix_TC.detach(), generator));
    leaves.add_moments(found.keys_LCC, found.values_LCC);
    if (done) done();
  }
  const auto num_tokens = static_cast<double>(texts.size()) * static_cast<double>(prefix - kFirst);
  found.keys_LCC /= num_tokens;
  found.values_LCC /= num_tokens;
  return found;
}

}  // namespace atl::kv_model
