#include "atoll/model/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>

#include <algorithm>
#include <cmath>

#include "atoll/model/checkpointed_layer.h"
#include "atoll/model/operations.h"
#include "atoll/model/watched_attention.h"
#include "atoll/model/watched_pass.h"

namespace atl::model {
namespace {

/// Of each token in its text.
at::Tensor positions_of(const at::Tensor& tokens_BT, std::span<const CachedRow> cached) {
  const auto options = tokens_BT.options();
  if (cached.empty()) return at::arange(tokens_BT.size(1), options).expand_as(tokens_BT);
  std::vector<at::Tensor> rows;
  for (const CachedRow& row : cached) {
    const int64_t begin = row.cache->length();
    rows.push_back(at::arange(begin, begin + row.num_tokens, options));
  }
  return at::cat(rows).expand_as(tokens_BT);
}

/// Weights of a norm whose file has how much over 1 they are. Their gradient is the same; on the
/// CPU kernels add it, elsewhere autograd.
Weight from_one(const Weight& weight) {
  const at::Tensor value = weight.value.is_cpu() ? weight.value.detach() : weight.value;
  return {.value = value + 1, .grad = weight.grad, .stored = {}};
}

at::Tensor projected(const Projection& projection, const ProjectionPlace& place,
                     const at::Tensor& x, const AdaptedRows& adapted) {
  return with_adapters(project(projection, x), x, place, adapted);
}

}  // namespace

Decoder::Decoder(const weights::ModelConfig& config, const Parameters& parameters,
                 LayerRange layers)
    : config_(config),
      design_(weights::family_of(config).design),
      is_parallel_(weights::family_of(config).has("parallel_residual") && config.parallel_residual),
      trains_(parameters.trains()),
      attention_(config, parameters.device(), parameters.kv_type(), trains_),
      embedding_(parameters.projection(weights::Role::kEmbedding).weight),
      positions_(parameters.projection(weights::Role::kPositions).weight),
      head_(config.tie_embeddings ? embedding_
                                  : parameters.projection(weights::Role::kHead).weight),
      final_norm_(parameters.projection(weights::Role::kFinalNorm)),
      range_(layers) {
  for (int64_t index = layers.begin; index < layers.end; ++index) {
    layers_.push_back(layer_of(parameters, index));
  }
}

Decoder::Layer Decoder::layer_of(const Parameters& parameters, int64_t index) const {
  const auto weights = [&](weights::Role role) { return parameters.projection(role, index); };
  Layer layer{.index = index,
              .attention_norm = weights(weights::Role::kAttentionNorm),
              .qkv = weights(weights::Role::kQueryKeyValue),
              .output = weights(weights::Role::kAttentionOutput),
              .attention_norm_behind = weights(weights::Role::kAttentionNormBehind),
              .mlp_norm = weights(weights::Role::kMlpNorm),
              .router = weights(weights::Role::kRouter),
              .mlp_norm_behind = weights(weights::Role::kMlpNormBehind),
              .query_norm = weights(weights::Role::kQueryNorm).weight,
              .key_norm = weights(weights::Role::kKeyNorm).weight,
              .sinks = weights(weights::Role::kSinks).weight,
              .mlps = {}};
  const bool has_experts = config_.num_experts > 0;
  for (int64_t i = 0; i < std::max<int64_t>(1, config_.num_experts); ++i) {
    const int64_t expert = has_experts ? i : -1;
    layer.mlps.push_back({parameters.projection(weights::Role::kMlpInput, index, expert),
                          parameters.projection(weights::Role::kMlpOutput, index, expert)});
  }
  return layer;
}

at::Tensor Decoder::embed(const at::Tensor& tokens_BT, std::span<const CachedRow> cached) const {
  at::Tensor x_BTC = model::embed(embedding_, tokens_BT);
  const double scale = design_.scales_embedding
                           ? std::sqrt(static_cast<double>(config_.hidden_size))
                           : config_.embedding_multiplier;
  if (scale != 1) x_BTC = x_BTC * scale;
  if (!positions_.exists()) return x_BTC;
  return x_BTC + model::embed(positions_, positions_of(tokens_BT, cached));
}

at::Tensor Decoder::layer(int64_t index, const at::Tensor& x_BTC, std::span<const CachedRow> cached,
                          LayerLosses* losses) const {
  return layer_with(index, x_BTC,
                    {.cached = cached, .adapted = adapted_rows(cached), .losses = losses});
}

at::Tensor Decoder::layer(int64_t index, const at::Tensor& x_BTC, const Adapter& adapter) const {
  return layer_with(index, x_BTC,
                    {.cached = {}, .adapted = {{&adapter, 0, x_BTC.size(0) * x_BTC.size(1)}}});
}

at::Tensor Decoder::layer_with(int64_t index, const at::Tensor& x_BTC, const With& with) const {
  const Layer& layer = layers_.at(static_cast<size_t>(index - range_.begin));
  if (design_.norm_place != weights::NormPlace::kBefore) {
    return with_norms_behind(layer, x_BTC, with);
  }
  const auto [stream_BTC, qkv_BTF] = add_and_project(
      layer.attention_norm, layer.qkv, {index, weights::Role::kQueryKeyValue}, x_BTC, {}, with);
  // The embedding's gradient is the sum of two, as autograd makes it, not the kernel's: digests of
  // runs hang on that rounding.
  const at::Tensor& residual_BTC = index == 0 ? x_BTC : stream_BTC;
  const auto scaled = [this](const at::Tensor& added_BTC) {
    return config_.residual_multiplier == 1 ? added_BTC : added_BTC * config_.residual_multiplier;
  };
  const at::Tensor attended_BTC = scaled(attend(layer, qkv_BTF, with));
  if (is_parallel_) {
    const at::Tensor middle_BTC = residual_BTC + attended_BTC;
    return middle_BTC + mlp(layer, norm(layer.mlp_norm, residual_BTC), with);
  }
  if (config_.num_experts == 0 && is_at_once(x_BTC)) {
    const Mlp& mlp = layer.mlps.front();
    const auto [middle_BTC, inner_BTF] =
        add_and_project(layer.mlp_norm, mlp.input, {index, weights::Role::kMlpInput}, residual_BTC,
                        attended_BTC, with);
    return middle_BTC + scaled(mlp_output(mlp, inner_BTF, index, with.adapted));
  }
  const auto [middle_BTC, mlp_input_BTC] = add_and_read(layer.mlp_norm, residual_BTC, attended_BTC);
  return middle_BTC + scaled(mlp(layer, mlp_input_BTC, with));
}

at::Tensor Decoder::with_norms_behind(const Layer& layer, const at::Tensor& x_BTC,
                                      const With& with) const {
  const bool is_around = design_.norm_place == weights::NormPlace::kAround;
  const auto before = [&](const Projection& weights, const at::Tensor& read_BTC) {
    return is_around ? norm(weights, read_BTC) : read_BTC;
  };
  const at::Tensor qkv_BTF = projected(layer.qkv, {layer.index, weights::Role::kQueryKeyValue},
                                       before(layer.attention_norm, x_BTC), with.adapted);
  const at::Tensor attended_BTC = attend(layer, qkv_BTF, with);
  const at::Tensor middle_BTC = x_BTC + norm(layer.attention_norm_behind, attended_BTC);
  const at::Tensor inner_BTC = mlp(layer, before(layer.mlp_norm, middle_BTC), with);
  return middle_BTC + norm(layer.mlp_norm_behind, inner_BTC);
}

at::Tensor Decoder::finish(const at::Tensor& x_BTC) const {
  const at::Tensor hidden_BTC = norm(final_norm_, x_BTC);
  // Of the logits, but these are many more.
  return config_.logits_divisor == 1 ? hidden_BTC : hidden_BTC / config_.logits_divisor;
}

at::Tensor Decoder::hidden_BTC(const at::Tensor& tokens_BT, std::span<const CachedRow> cached,
                               LayerLosses* losses) const {
  PassWatcher* const watcher = at::GradMode::is_enabled() && cached.empty() ? watcher_ : nullptr;
  if (watcher != nullptr) watcher->before(0);
  at::Tensor x_BTC = embed(tokens_BT, cached);
  if (watcher != nullptr) watcher->behind(0);
  const bool checkpoints = checkpoints_activations_ && cached.empty() && has_gradient(x_BTC);
  for (int64_t index = range_.begin; index < range_.end; ++index) {
    const at::Tensor read_BTC = enter_stage(watcher, index + 1, x_BTC);
    x_BTC = checkpoints ? checkpointed_layer(*this, index, read_BTC, losses)
                        : layer(index, read_BTC, cached, losses);
    x_BTC = leave_stage(watcher, index + 1, x_BTC);
  }
  return finish(enter_stage(watcher, range_.end + 1, x_BTC));
}

at::Tensor Decoder::norm(const Projection& weights, const at::Tensor& x_BTC) const {
  switch (design_.norm) {
    case weights::NormKind::kRms:
      return rms_norm(weights.weight, x_BTC, config_.norm_eps);
    case weights::NormKind::kRmsFromOne:
      return rms_norm(from_one(weights.weight), x_BTC, config_.norm_eps);
    case weights::NormKind::kLayer:
    case weights::NormKind::kLayerWithoutAny:
      return layer_norm(weights, x_BTC, config_.norm_eps);
  }
  return {};
}

Decoder::Read Decoder::add_and_read(const Projection& weights, const at::Tensor& x_BTC,
                                    const at::Tensor& delta_BTC) const {
  if (design_.norm == weights::NormKind::kRms) {
    return add_rms_norm(weights.weight, x_BTC, delta_BTC, config_.norm_eps);
  }
  const at::Tensor sum_BTC = delta_BTC.defined() ? x_BTC + delta_BTC : x_BTC;
  return {sum_BTC, norm(weights, sum_BTC)};
}

Decoder::Read Decoder::add_and_project(const Projection& norm, const Projection& projection,
                                       const ProjectionPlace& place, const at::Tensor& x_BTC,
                                       const at::Tensor& delta_BTC, const With& with) const {
  if (design_.norm == weights::NormKind::kRms && with.adapted.empty()) {
    return project_rms_norm(projection, norm.weight, x_BTC, delta_BTC, config_.norm_eps);
  }
  const auto [sum_BTC, read_BTC] = add_and_read(norm, x_BTC, delta_BTC);
  return {sum_BTC, projected(projection, place, read_BTC, with.adapted)};
}

at::Tensor Decoder::with_norm(const Layer& layer, const at::Tensor& qkv_BTF) const {
  const AttentionShape shape{qkv_BTF.size(0), qkv_BTF.size(1), config_.num_heads,
                             config_.num_kv_heads, config_.head_size()};
  if (design_.qk_norm == weights::QkNorm::kPerHead) {
    const bool is_from_one = design_.norm == weights::NormKind::kRmsFromOne;
    return head_norm(shape, is_from_one ? from_one(layer.query_norm) : layer.query_norm,
                     is_from_one ? from_one(layer.key_norm) : layer.key_norm, qkv_BTF,
                     config_.norm_eps);
  }
  const int64_t queries = shape.num_heads * shape.head_size;
  const int64_t keys = shape.num_kv_heads * shape.head_size;
  const auto part = [&](int64_t begin, int64_t size) { return qkv_BTF.narrow(2, begin, size); };
  return at::cat(
      {rms_norm(layer.query_norm, part(0, queries), config_.norm_eps),
       rms_norm(layer.key_norm, part(queries, keys), config_.norm_eps), part(queries + keys, keys)},
      2);
}

at::Tensor Decoder::attend(const Layer& layer, at::Tensor qkv_BTF, const With& with) const {
  if (design_.qkv_order == weights::QkvOrder::kByHead) {
    qkv_BTF = qkv_BTF.unflatten(2, {config_.num_heads, 3, config_.head_size()})
                  .transpose(2, 3)
                  .flatten(2);
  }
  if (design_.qk_norm != weights::QkNorm::kNone) qkv_BTF = with_norm(layer, qkv_BTF);
  if (config_.clip_qkv > 0) qkv_BTF = qkv_BTF.clamp(-config_.clip_qkv, config_.clip_qkv);
  qkv_BTF = WatchedAttention::pass(layer.index, qkv_BTF);
  const at::Tensor read_BTF = attention_(qkv_BTF, layer.sinks.value, layer.index, with.cached);
  return projected(layer.output, {layer.index, weights::Role::kAttentionOutput}, read_BTF,
                   with.adapted);
}

bool Decoder::is_at_once(const at::Tensor& x) const { return trains_ || has_gradient(x); }

at::Tensor Decoder::mlp(const Layer& layer, const at::Tensor& x_BTC, const With& with) const {
  constexpr int64_t kSlice = 1024;  // Tokens: what is inside an MLP is several times as wide.
  const at::Tensor x_MC = x_BTC.flatten(0, 1);
  if (is_at_once(x_MC) || x_MC.size(0) <= kSlice) {
    return mlp_of(layer, x_MC, with.adapted, with.losses).view(x_BTC.sizes());
  }
  const at::Tensor out_MC = at::empty_like(x_MC);
  for (int64_t begin = 0; begin < x_MC.size(0); begin += kSlice) {
    const int64_t size = std::min(kSlice, x_MC.size(0) - begin);
    out_MC.narrow(0, begin, size)
        .copy_(mlp_of(layer, x_MC.narrow(0, begin, size), cut(with.adapted, begin, size),
                      with.losses));
  }
  return out_MC.view(x_BTC.sizes());
}

at::Tensor Decoder::mlp_of(const Layer& layer, const at::Tensor& x_MC, const AdaptedRows& adapted,
                           LayerLosses* losses) const {
  if (config_.num_experts == 0) return mlp_of(layer.mlps.front(), x_MC, layer.index, adapted);
  const Routing routing = route(project(layer.router, x_MC).to(at::kFloat),
                                config_.experts_per_token, config_.router_normalises);
  if (losses != nullptr) losses->balance.push_back(balance_loss(routing));
  return mix(routing, x_MC, [&](int64_t expert, const at::Tensor& read_MC) {
    return mlp_of(layer.mlps[static_cast<size_t>(expert)], read_MC, layer.index, {});
  });
}

at::Tensor Decoder::mlp_of(const Mlp& mlp, const at::Tensor& x_MC, int64_t layer,
                           const AdaptedRows& adapted) const {
  const at::Tensor inner_MF =
      projected(mlp.input, {layer, weights::Role::kMlpInput}, x_MC, adapted);
  return mlp_output(mlp, inner_MF, layer, adapted);
}

at::Tensor Decoder::mlp_output(const Mlp& mlp, const at::Tensor& inner_MF, int64_t layer,
                               const AdaptedRows& adapted) const {
  if (design_.mlp == weights::MlpKind::kGated && adapted.empty()) {
    return project_swiglu(mlp.output, inner_MF);
  }
  return projected(mlp.output, {layer, weights::Role::kMlpOutput}, activated(inner_MF), adapted);
}

at::Tensor Decoder::activated(const at::Tensor& inner) const {
  switch (design_.mlp) {
    case weights::MlpKind::kGated:
      return swiglu(inner);
    case weights::MlpKind::kGatedByGelu:
      return geglu(inner);
    case weights::MlpKind::kGatedClamped:
      return clamped_swiglu(inner);
    case weights::MlpKind::kPlain:
      break;
  }
  return config_.activation == "gelu" ? at::gelu(inner) : gelu_tanh(inner);
}

}  // namespace atl::model
