#include "atoll/model/llama.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/model/hf_folder.h"
#include "atoll/model/operations.h"

namespace atl::model {
namespace {

const ModelConfig& checked(const ModelConfig& config) {
  check(config);
  return config;
}

}  // namespace

Llama::Llama(const ModelConfig& config, at::Device device, Purpose purpose)
    : config_(checked(config)), parameters_(config_, device, purpose) {
  embedding_ = parameters_.weight("model.embed_tokens.weight");
  final_norm_ = parameters_.weight("model.norm.weight");
  head_ = config_.tie_embeddings ? embedding_ : parameters_.weight("lm_head.weight");
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    const auto name = [&](const char* part) {
      return fmt::format("model.layers.{}.{}.weight", index, part);
    };
    Layer layer;
    layer.attention_norm = parameters_.weight(name("input_layernorm"));
    layer.qkv = parameters_.weight(name("self_attn.q_proj"), name("self_attn.v_proj"));
    layer.output = parameters_.weight(name("self_attn.o_proj"));
    if (config_.qk_norm) {
      layer.query_norm = parameters_.weight(name("self_attn.q_norm"));
      layer.key_norm = parameters_.weight(name("self_attn.k_norm"));
    }
    layer.mlp_norm = parameters_.weight(name("post_attention_layernorm"));
    layer.gate_up = parameters_.weight(name("mlp.gate_proj"), name("mlp.up_proj"));
    layer.down = parameters_.weight(name("mlp.down_proj"));
    layers_.push_back(std::move(layer));
  }
  // Angles in double: at position 100,000 FP32 would be off by a hundredth of a turn.
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exponents =
      at::arange(0, config_.head_size(), 2, options) / static_cast<double>(config_.head_size());
  const at::Tensor positions = at::arange(config_.max_positions, options);
  const at::Tensor angles_TN = at::outer(positions, at::pow(config_.rope_theta, -exponents));
  cos_TN_ = angles_TN.cos().to(device, at::kFloat);
  sin_TN_ = angles_TN.sin().to(device, at::kFloat);
}

void Llama::initialise(uint64_t seed) {
  const at::NoGradGuard no_grad;
  const double into_residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.num_layers));
  for (const ParameterSpec& spec : parameters_.specs()) {
    const at::Tensor target = parameters_.view(spec.name);
    if (spec.shape.size() == 1) {
      target.fill_(1);
      continue;
    }
    const bool residual =
        spec.name.ends_with("o_proj.weight") || spec.name.ends_with("down_proj.weight");
    const double deviation = residual ? into_residual : 0.02;
    const uint64_t stream = random_stream(spec.name);
    const at::Tensor values = at::ones({spec.size}, at::TensorOptions().dtype(at::kFloat));
    float* data = values.mutable_data_ptr<float>();
    at::parallel_for(0, spec.size, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        data[i] =
            static_cast<float>(deviation * random_normal(seed, stream, static_cast<uint64_t>(i)));
      }
    });
    target.copy_(values.view(spec.shape));
  }
}

void Llama::check_tokens(const at::Tensor& tokens_BT, int64_t begin) const {
  ATOLL_CHECK(tokens_BT.dim() == 2 && tokens_BT.scalar_type() == at::kLong);
  if (begin + tokens_BT.size(1) > config_.max_positions) {
    throw InputError(fmt::format("{} tokens do not fit into the model's context of {} positions",
                                 begin + tokens_BT.size(1), config_.max_positions));
  }
  if (!tokens_BT.is_cpu()) return;  // The device reports an index that is out of range itself.
  const at::Tensor contiguous = tokens_BT.contiguous();
  const int64_t* ids = contiguous.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < contiguous.numel(); ++i) {
    if (ids[i] >= 0 && ids[i] < config_.vocab_size) continue;
    throw InputError(
        fmt::format("token {} is not in the model's vocabulary of {}; is this the "
                    "tokenizer the model was trained with?",
                    ids[i], config_.vocab_size));
  }
}

at::Tensor Llama::attend(const Layer& layer, const at::Tensor& x_BTC, KvCache* cache,
                         int64_t layer_index) const {
  const AttentionShape shape{x_BTC.size(0), x_BTC.size(1), config_.num_heads, config_.num_kv_heads,
                             config_.head_size()};
  at::Tensor qkv_BTF = linear(layer.qkv, x_BTC);
  if (config_.qk_norm) {
    qkv_BTF = head_norm(shape, layer.query_norm, layer.key_norm, qkv_BTF, config_.norm_eps);
  }
  const int64_t begin = cache == nullptr ? 0 : cache->length();
  const at::Tensor cos_TN = cos_TN_.narrow(0, begin, shape.positions);
  const at::Tensor sin_TN = sin_TN_.narrow(0, begin, shape.positions);
  if (cache == nullptr) {
    return linear(layer.output, rotary_attention(shape, qkv_BTF, cos_TN, sin_TN));
  }
  const at::Tensor heads_BTHN =
      rotated(shape, qkv_BTF, cos_TN, sin_TN)
          .unflatten(2, {shape.num_heads + 2 * shape.num_kv_heads, shape.head_size});
  const at::Tensor q_BHTN = heads_BTHN.narrow(2, 0, shape.num_heads).transpose(1, 2);
  cache->write(layer_index, heads_BTHN.narrow(2, shape.num_heads, shape.num_kv_heads),
               heads_BTHN.narrow(2, shape.num_heads + shape.num_kv_heads, shape.num_kv_heads));
  const int64_t end = begin + shape.positions;
  std::optional<at::Tensor> mask;  // Needed only for several tokens behind a filled cache.
  if (begin > 0 && shape.positions > 1) {
    const auto options = at::TensorOptions().dtype(at::kBool).device(x_BTC.device());
    mask = at::ones({shape.positions, end}, options).tril(begin);
  }
  const at::Tensor attended_BHTN = at::scaled_dot_product_attention(
      q_BHTN, cache->keys_BHSN(layer_index, end), cache->values_BHSN(layer_index, end), mask, 0.0,
      begin == 0 && shape.positions > 1, std::nullopt, shape.num_heads != shape.num_kv_heads);
  return linear(layer.output, attended_BHTN.transpose(1, 2).flatten(2));
}

at::Tensor Llama::forward(const at::Tensor& tokens_BT, KvCache* cache) const {
  check_tokens(tokens_BT, cache == nullptr ? 0 : cache->length());
  const double epsilon = config_.norm_eps;
  at::Tensor residual_BTC = embed(embedding_, tokens_BT);
  at::Tensor x_BTC = rms_norm(layers_.front().attention_norm, residual_BTC, epsilon);
  for (size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    const Weight& next_norm =
        index + 1 < layers_.size() ? layers_[index + 1].attention_norm : final_norm_;
    const at::Tensor attended_BTC = attend(layer, x_BTC, cache, static_cast<int64_t>(index));
    std::tie(residual_BTC, x_BTC) =
        add_rms_norm(layer.mlp_norm, residual_BTC, attended_BTC, epsilon);
    const at::Tensor mlp_BTC = linear(layer.down, swiglu(linear(layer.gate_up, x_BTC)));
    std::tie(residual_BTC, x_BTC) = add_rms_norm(next_norm, residual_BTC, mlp_BTC, epsilon);
  }
  if (cache != nullptr) cache->advance(tokens_BT.size(1));
  return x_BTC;
}

at::Tensor Llama::hidden_BTC(const at::Tensor& tokens_BT) const {
  return forward(tokens_BT, nullptr);
}

at::Tensor Llama::hidden_BTC(const at::Tensor& tokens_BT, KvCache& cache) const {
  const at::NoGradGuard no_grad;
  return forward(tokens_BT, &cache);
}

at::Tensor Llama::logits(const at::Tensor& hidden) const { return linear(head_, hidden); }

Llama load_llama(const std::filesystem::path& folder, at::Device device, Purpose purpose) {
  const HfConfig found = load_hf_config(folder);
  Llama model(found.config, device, purpose);
  const at::NoGradGuard no_grad;
  const at::Tensor& values_P = model.parameters().values_P();
  const at::Tensor host_P = values_P.to(at::kCPU);
  load_hf_weights(folder, found.config,
                  {host_P.mutable_data_ptr<float>(), static_cast<size_t>(host_P.numel())});
  if (!values_P.is_cpu()) values_P.copy_(host_P);
  return model;
}

}  // namespace atl::model
