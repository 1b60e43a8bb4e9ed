#include "atoll/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/local_rotary.h"
#include "atoll/model/operations.h"
#include "atoll/weights/families.h"

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

/// Pairs that turn often within the original context stay, those that turn seldom are stretched
/// whole (Peng et al. 2023, equations 17 to 23).
at::Tensor yarn_frequencies(const weights::ModelConfig& config, const at::Tensor& frequencies) {
  const auto original = static_cast<double>(config.rope_original_positions);
  const auto size = static_cast<double>(config.rotary_size());
  // The pair that turns `turns` times within `original`.
  const auto pair_of = [&](double turns) {
    return size * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(config.rope_theta));
  };
  double low = pair_of(config.rope_beta_fast);
  double high = pair_of(config.rope_beta_slow);
  if (config.rope_whole_pairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  const at::Tensor pairs = at::arange(frequencies.numel(), frequencies.options());
  const at::Tensor stretched = ((pairs - low) / (high - low)).clamp(0, 1);
  return frequencies / config.rope_factor * stretched + frequencies * (1 - stretched);
}

/// By which queries and keys grow with the stretching of yarn, and of longrope.
double attention_factor(const weights::ModelConfig& config) {
  const bool is_longrope = config.rope_type == "longrope";
  if (!is_longrope && config.rope_type != "yarn") return 1;
  if (config.rope_attention_factor != 0) return config.rope_attention_factor;
  if (config.rope_factor <= 1) return 1;
  const double growth = std::log(config.rope_factor);
  if (!is_longrope) return 0.1 * growth + 1;
  return std::sqrt(1 + growth / std::log(static_cast<double>(config.rope_original_positions)));
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
  if (config.rope_type == "yarn") return yarn_frequencies(config, plain);
  if (config.rope_type == "longrope") {
    const bool is_long = length > config.rope_original_positions;
    return plain / at::tensor(weights::numbers_of(is_long ? config.rope_long_factors
                                                          : config.rope_short_factors),
                              options);
  }
  return plain;
}

KeysInMemory keys_in(const at::Tensor& heads_HSN) {
  return {.data = heads_HSN.const_data_ptr<float>(),
          .position_stride = heads_HSN.stride(1),
          .head_stride = heads_HSN.stride(0)};
}

/// Keys and values of a layer in a cache's pages.
class PagesOfLayer {
 public:
  PagesOfLayer(const HeadSizes& sizes, const KvCache& cache, int64_t layer)
      : sizes_(sizes),
        format_(cache.type() == at::kBFloat16 ? PanelFormat::kBF16 : PanelFormat::kF32) {
    const auto size = static_cast<int64_t>(c10::elementSize(cache.type()));
    for (const KvPage& page : cache.pages()) {
      auto* const begin = static_cast<std::byte*>(page->mutable_data_ptr());
      std::byte* const of_layer = begin + (layer - cache.first_layer()) * page->stride(0) * size;
      key_pages_.push_back(of_layer);
      value_pages_.push_back(of_layer + page->stride(1) * size);
    }
  }

  KeysInMemory keys() const {
    return {.position_stride = 1,
            .head_stride = KvPool::kPagePositions * sizes_.head_size,
            .element_stride = KvPool::kPagePositions,
            .pages = key_pages_.data(),
            .page_positions = KvPool::kPagePositions,
            .format = format_};
  }
  KeysInMemory values() const {
    return {.position_stride = sizes_.head_size,
            .head_stride = KvPool::kPagePositions * sizes_.head_size,
            .pages = value_pages_.data(),
            .page_positions = KvPool::kPagePositions,
            .format = format_};
  }

  /// Heads of rows that are `stride` apart, from that position on.
  void write(int64_t begin, int64_t count, const float* k, const float* v, int64_t stride) {
    if (format_ == PanelFormat::kBF16) {
      write_as<c10::BFloat16>(begin, count, k, v, stride);
    } else {
      write_as<float>(begin, count, k, v, stride);
    }
  }

 private:
  template <typename Element>
  void write_as(int64_t begin, int64_t count, const float* k, const float* v, int64_t stride) {
    constexpr int64_t kPositions = KvPool::kPagePositions;
    for (int64_t i = 0; i < count; ++i) {
      const auto page = static_cast<size_t>((begin + i) / kPositions);
      const int64_t place = (begin + i) % kPositions;
      for (int64_t head = 0; head < sizes_.num_kv_heads; ++head) {
        const int64_t offset = head * sizes_.head_size;
        auto* const keys = static_cast<Element*>(key_pages_[page]) + offset * kPositions + place;
        const float* const from = k + i * stride + offset;
        for (int64_t n = 0; n < sizes_.head_size; ++n) keys[n * kPositions] = from[n];
        std::copy_n(v + i * stride + offset, sizes_.head_size,
                    static_cast<Element*>(value_pages_[page]) + offset * kPositions +
                        place * sizes_.head_size);
      }
    }
  }

  HeadSizes sizes_;
  PanelFormat format_;
  std::vector<void*> key_pages_, value_pages_;
};

struct Heads {
  at::Tensor q_BTHN, k_BTHN, v_BTHN;
};

Heads heads_of(const AttentionShape& shape, const at::Tensor& qkv_BTF) {
  const int64_t heads = shape.num_heads;
  const int64_t kv_heads = shape.num_kv_heads;
  const at::Tensor all_BTHN = qkv_BTF.unflatten(2, {heads + 2 * kv_heads, shape.head_size});
  return {all_BTHN.narrow(2, 0, heads), all_BTHN.narrow(2, heads, kv_heads),
          all_BTHN.narrow(2, heads + kv_heads, kv_heads)};
}

at::Tensor empty_out(const AttentionShape& shape, const at::Tensor& qkv_BTF) {
  return at::empty({shape.batch, shape.positions, shape.num_heads * shape.head_size},
                   qkv_BTF.options());
}

/// Each row of the batch with its own keys, for attend(); they point into the tensors.
void add_rows(const AttentionShape& shape, const at::Tensor& qkv_BTF, const at::Tensor& k_BHSN,
              const at::Tensor& v_BHSN, const at::Tensor& out_BTHN,
              std::vector<AttendingRow>& rows) {
  for (int64_t b = 0; b < shape.batch; ++b) {
    rows.push_back({.num_queries = shape.positions,
                    .num_keys = k_BHSN.size(2),
                    .q = qkv_BTF[b].const_data_ptr<float>(),
                    .q_stride = shape.row_width(),
                    .k = keys_in(k_BHSN[b]),
                    .v = keys_in(v_BHSN[b]),
                    .out_THN = out_BTHN[b].mutable_data_ptr<float>()});
  }
}

}  // namespace

std::optional<Rotary> local_rotary(const weights::ModelConfig& config, at::Device device) {
  if (!weights::family_of(config).design.windows_are_plain) return {};
  weights::ModelConfig local = config;
  if (config.rope_local_theta != 0) local.rope_theta = config.rope_local_theta;
  local.rope_type = "default";
  return Rotary(weights::canonical(local), device);
}

Rotary::Rotary(const weights::ModelConfig& config, at::Device device)
    : config_(config), device_(device) {
  std::tie(cos_TR_, sin_TR_) = table(0, std::min(kFirstTable, config.steady_positions()), 1);
}

std::pair<at::Tensor, at::Tensor> Rotary::table(int64_t begin, int64_t end, int64_t length) const {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor angles_TR =
      at::outer(at::arange(begin, end, options), frequencies(config_, length));
  const double factor = attention_factor(config_);
  return {(angles_TR.cos() * factor).to(device_, at::kFloat),
          (angles_TR.sin() * factor).to(device_, at::kFloat)};
}

std::pair<at::Tensor, at::Tensor> Rotary::factors(int64_t begin, int64_t count) const {
  const int64_t length = begin + count;
  if (length <= config_.steady_positions()) {
    if (length > cos_TR_.size(0)) {
      const int64_t size = std::min(2 * length, config_.steady_positions());
      std::tie(cos_TR_, sin_TR_) = table(0, size, length);
    }
    return {cos_TR_.narrow(0, begin, count), sin_TR_.narrow(0, begin, count)};
  }
  return table(begin, length, length);
}

Attention::Attention(const weights::ModelConfig& config, at::Device device, at::ScalarType kv_type,
                     bool trains)
    : config_(config),
      rotary_(config, device),
      local_rotary_(local_rotary(config, device)),
      kv_type_(kv_type),
      trains_(trains) {}

at::Tensor Attention::operator()(const at::Tensor& qkv_BTF, const at::Tensor& sinks_H,
                                 int64_t layer, std::span<const CachedRow> cached) const {
  if (!cached.empty()) return with_caches(qkv_BTF, sinks_H, layer, cached);
  const AttentionShape shape = shape_of(qkv_BTF, layer);
  if (trains_ || has_gradient(qkv_BTF) || !qkv_BTF.is_cpu()) {
    const auto [cos_TR, sin_TR] = factors(layer, 0, shape.positions);
    const composite::ScoreOptions options{config_.attention_softcap, sinks_H};
    if (options.are_plain()) return rotary_attention(shape, qkv_BTF, cos_TR, sin_TR);
    // Rare enough to go LibTorch's way.
    return composite::attention(shape, composite::rotated(shape, qkv_BTF, cos_TR, sin_TR), options);
  }
  const at::Tensor qkv = turned(qkv_BTF, layer, 0);
  const Heads heads = heads_of(shape, qkv);
  if (kv_type_ != at::kFloat) {  // As they would come from a cache.
    for (const at::Tensor& part : {heads.k_BTHN, heads.v_BTHN}) part.copy_(part.to(kv_type_));
  }
  const at::Tensor out_BTHN = empty_out(shape, qkv);
  std::vector<AttendingRow> rows;
  add_rows(shape, qkv, heads.k_BTHN.transpose(1, 2), heads.v_BTHN.transpose(1, 2), out_BTHN, rows);
  attend(sizes_of(shape, sinks_H), rows);
  return out_BTHN;
}

AttentionShape Attention::shape_of(const at::Tensor& qkv_BTF, int64_t layer) const {
  return {qkv_BTF.size(0),
          qkv_BTF.size(1),
          config_.num_heads,
          config_.num_kv_heads,
          config_.head_size(),
          config_.window_of(layer),
          static_cast<float>(config_.score_scale())};
}

HeadSizes Attention::sizes_of(const AttentionShape& shape, const at::Tensor& sinks_H) const {
  return {shape.num_heads,
          shape.num_kv_heads,
          shape.head_size,
          shape.window,
          shape.scale,
          static_cast<float>(config_.attention_softcap),
          sinks_H.defined() ? sinks_H.const_data_ptr<float>() : nullptr};
}

/// Of no pairs in a layer that does not turn.
std::pair<at::Tensor, at::Tensor> Attention::factors(int64_t layer, int64_t begin,
                                                     int64_t count) const {
  const bool is_local = local_rotary_ && config_.window_of(layer) > 0;
  auto [cos_TR, sin_TR] = (is_local ? *local_rotary_ : rotary_).factors(begin, count);
  if (config_.turns(layer)) return {cos_TR, sin_TR};
  return {cos_TR.narrow(1, 0, 0), sin_TR.narrow(1, 0, 0)};
}

/// Queries and keys turned by their positions, which begin at `begin`.
at::Tensor Attention::turned(const at::Tensor& qkv_BTF, int64_t layer, int64_t begin) const {
  const auto [cos_TR, sin_TR] = factors(layer, begin, qkv_BTF.size(1));
  return rotated(shape_of(qkv_BTF, layer), qkv_BTF, cos_TR, sin_TR);
}

at::Tensor Attention::with_caches(const at::Tensor& qkv_BTF, const at::Tensor& sinks_H,
                                  int64_t layer, std::span<const CachedRow> cached) const {
  for (const CachedRow& row : cached) ATOLL_CHECK(row.cache->type() == kv_type_);
  if (qkv_BTF.is_cpu()) return with_pages(qkv_BTF.contiguous(), sinks_H, layer, cached);
  std::vector<at::Tensor> outputs;
  int64_t first = 0;
  for (const CachedRow& row : cached) {
    KvCache& cache = *row.cache;
    const int64_t end = cache.length() + row.num_tokens;
    const at::Tensor part_BTF = qkv_BTF.narrow(1, first, row.num_tokens);
    const AttentionShape shape = shape_of(part_BTF, layer);
    const Heads heads = heads_of(shape, turned(part_BTF, layer, cache.length()));
    first += row.num_tokens;
    cache.write(layer, heads.k_BTHN[0], heads.v_BTHN[0]);
    outputs.push_back(composite::attend(heads.q_BTHN.transpose(1, 2),
                                        cache.keys_HSN(layer, end).unsqueeze(0),
                                        cache.values_HSN(layer, end).unsqueeze(0), shape.window,
                                        shape.scale, {config_.attention_softcap, sinks_H}));
  }
  return outputs.size() == 1 ? outputs.front() : at::cat(outputs, 1);
}

/// In place and without a tensor for each row: many rows of one token are a pass.
at::Tensor Attention::with_pages(const at::Tensor& qkv_1TF, const at::Tensor& sinks_H,
                                 int64_t layer, std::span<const CachedRow> cached) const {
  const AttentionShape shape = shape_of(qkv_1TF, layer);
  const HeadSizes sizes = sizes_of(shape, sinks_H);
  const int64_t width = shape.row_width();
  const int64_t keys_begin = sizes.num_heads * sizes.head_size;
  const int64_t keys_size = sizes.num_kv_heads * sizes.head_size;
  const at::Tensor out_1THN = empty_out(shape, qkv_1TF);
  float* qkv = qkv_1TF.mutable_data_ptr<float>();
  float* out = out_1THN.mutable_data_ptr<float>();
  std::vector<PagesOfLayer> pages;  // What `rows` point to.
  pages.reserve(cached.size());
  std::vector<AttendingRow> rows;
  for (const CachedRow& row : cached) {
    const int64_t begin = row.cache->length();
    const auto [cos_TR, sin_TR] = factors(layer, begin, row.num_tokens);
    rotate({row.num_tokens, width, sizes.num_heads + sizes.num_kv_heads, sizes.head_size},
           {row.num_tokens, 2 * cos_TR.size(1)}, qkv, cos_TR.contiguous().const_data_ptr<float>(),
           sin_TR.contiguous().const_data_ptr<float>(), Turn::kForwards);
    PagesOfLayer& own = pages.emplace_back(sizes, *row.cache, layer);
    own.write(begin, row.num_tokens, qkv + keys_begin, qkv + keys_begin + keys_size, width);
    rows.push_back({.num_queries = row.num_tokens,
                    .num_keys = begin + row.num_tokens,
                    .q = qkv,
                    .q_stride = width,
                    .k = own.keys(),
                    .v = own.values(),
                    .out_THN = out});
    qkv += row.num_tokens * width;
    out += row.num_tokens * keys_begin;
  }
  attend(sizes, rows);
  return out_1THN;
}

}  // namespace atl::model
