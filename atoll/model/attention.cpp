#include "atoll/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "atoll/model/composite.h"
#include "atoll/model/operations.h"

namespace atl::model {
namespace {

constexpr int64_t kFirstTable = 4096;

/// Long waves stretched, short ones not, those between in between.
at::Tensor llama3_frequencies(const weights::ModelConfig& config, const at::Tensor& frequencies) {
  const auto original = static_cast<double>(config.rope_original_positions);
  const at::Tensor turns = frequencies * (original / (2 * std::numbers::pi));  // In `original`.
  const double low = config.rope_low_freq_factor;
  const double high = config.rope_high_freq_factor;
  const at::Tensor kept = ((turns - low) / (high - low)).clamp(0, 1);
  return frequencies * kept + frequencies / config.rope_factor * (1 - kept);
}

/// Radians per position, (R / 2). In double: at position 100,000 FP32 would be off by a hundredth
/// of a turn.
at::Tensor frequencies(const weights::ModelConfig& config, int64_t length) {
  const auto size = static_cast<double>(config.rotary_size());
  double base = config.rope_theta;
  if (config.rope_type == "dynamic" && length > config.max_positions && size > 2) {
    const double share = static_cast<double>(length) / static_cast<double>(config.max_positions);
    base *= std::pow(config.rope_factor * share - (config.rope_factor - 1), size / (size - 2));
  }
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exponents = at::arange(0, config.rotary_size(), 2, options) / size;
  const at::Tensor plain = at::pow(base, -exponents);
  if (config.rope_type == "linear") return plain / config.rope_factor;
  if (config.rope_type == "llama3") return llama3_frequencies(config, plain);
  return plain;
}

}  // namespace

Rotary::Rotary(const weights::ModelConfig& config, at::Device device)
    : config_(config), device_(device) {
  std::tie(cos_TR_, sin_TR_) = table(0, std::min(kFirstTable, config.max_positions), 1);
}

std::pair<at::Tensor, at::Tensor> Rotary::table(int64_t begin, int64_t end, int64_t length) const {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor angles_TR =
      at::outer(at::arange(begin, end, options), frequencies(config_, length));
  return {angles_TR.cos().to(device_, at::kFloat), angles_TR.sin().to(device_, at::kFloat)};
}

std::pair<at::Tensor, at::Tensor> Rotary::factors(int64_t begin, int64_t count) const {
  const int64_t length = begin + count;
  if (length <= config_.max_positions) {
    if (length > cos_TR_.size(0)) {
      const int64_t size = std::min(2 * length, config_.max_positions);
      std::tie(cos_TR_, sin_TR_) = table(0, size, length);
    }
    return {cos_TR_.narrow(0, begin, count), sin_TR_.narrow(0, begin, count)};
  }
  return table(begin, length, length);
}

Attention::Attention(const weights::ModelConfig& config, at::Device device)
    : config_(config), rotary_(config, device) {}

at::Tensor Attention::operator()(const at::Tensor& qkv_BTF, int64_t layer,
                                 std::span<const CachedRow> cached) const {
  if (cached.size() == 1) return with_cache(qkv_BTF, layer, *cached[0].cache);
  if (!cached.empty()) {
    std::vector<at::Tensor> rows;
    int64_t begin = 0;
    for (const CachedRow& row : cached) {
      rows.push_back(with_cache(qkv_BTF.narrow(1, begin, row.num_tokens), layer, *row.cache));
      begin += row.num_tokens;
    }
    return at::cat(rows, 1);
  }
  const AttentionShape shape{qkv_BTF.size(0),      qkv_BTF.size(1),     config_.num_heads,
                             config_.num_kv_heads, config_.head_size(), config_.window_of(layer)};
  const auto [cos_TR, sin_TR] = rotary_.factors(0, shape.positions);
  return rotary_attention(shape, qkv_BTF, cos_TR, sin_TR);
}

at::Tensor Attention::with_cache(const at::Tensor& qkv_BTF, int64_t layer, KvCache& cache) const {
  const AttentionShape shape{qkv_BTF.size(0),      qkv_BTF.size(1),     config_.num_heads,
                             config_.num_kv_heads, config_.head_size(), config_.window_of(layer)};
  const int64_t begin = cache.length();
  const int64_t end = begin + shape.positions;
  const auto [cos_TR, sin_TR] = rotary_.factors(begin, shape.positions);
  const at::Tensor heads_BTHN =
      rotated(shape, qkv_BTF, cos_TR, sin_TR)
          .unflatten(2, {shape.num_heads + 2 * shape.num_kv_heads, shape.head_size});
  const at::Tensor q_BHTN = heads_BTHN.narrow(2, 0, shape.num_heads).transpose(1, 2);
  cache.write(layer, heads_BTHN.narrow(2, shape.num_heads, shape.num_kv_heads),
              heads_BTHN.narrow(2, shape.num_heads + shape.num_kv_heads, shape.num_kv_heads));
  return composite::attend(q_BHTN, cache.keys_BHSN(layer, end), cache.values_BHSN(layer, end),
                           shape.window);
}

}  // namespace atl::model
