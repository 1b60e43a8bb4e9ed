#include "atoll/kv_model/planes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/model/local_rotary.h"

namespace atl::kv_model {
namespace {

/// Of length 1: what a model's attention factor adds to turning is no turning.
kv::TurnTable table_of(const model::Rotary& rotary, int64_t begin, int64_t count) {
  const auto [cos_TR, sin_TR] = rotary.factors(begin, count);
  const at::Tensor length_TR = (cos_TR.square() + sin_TR.square()).sqrt();
  const auto rows = [](const at::Tensor& x_TR) {
    const at::Tensor x_RT = x_TR.t().contiguous();
    const float* const data = x_RT.const_data_ptr<float>();
    return std::vector<float>(data, data + x_RT.numel());
  };
  return {.cos_RT = rows(cos_TR / length_TR), .sin_RT = rows(sin_TR / length_TR)};
}

}  // namespace

std::vector<uint16_t> planes_of(const model::KvCache& cache, model::LayerRange layers,
                                int64_t count) {
  if (cache.type() != at::kBFloat16) {
    throw InputError(
        "keys and values are coded as bfloat16s, and the model keeps others; "
        "--kv-dtype bf16 makes it keep those");
  }
  ATOLL_CHECK(count > 0 && count <= cache.length());
  std::vector<uint16_t> kv_PCT;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const at::Tensor& part_HSN :
         {cache.keys_HSN(layer, count), cache.values_HSN(layer, count)}) {
      const at::Tensor part_HNS = part_HSN.transpose(1, 2).contiguous();
      const auto* const data = static_cast<const uint16_t*>(part_HNS.const_data_ptr());
      kv_PCT.insert(kv_PCT.end(), data, data + part_HNS.numel());
    }
  }
  return kv_PCT;
}

void append_planes(std::span<const uint16_t> kv_PCT, const weights::ModelConfig& config,
                   model::LayerRange layers, model::KvCache& cache) {
  const int64_t num_heads = config.num_kv_heads;
  const int64_t head_size = config.head_size();
  ATOLL_CHECK(cache.type() == at::kBFloat16);
  const auto num_planes = static_cast<size_t>(2 * layers.size());
  const size_t size = kv_PCT.size() / num_planes;
  const int64_t count = static_cast<int64_t>(size) / (num_heads * head_size);
  ATOLL_CHECK(cache.prepare(count), "a cache for codecs has room");
  const auto part_THN = [&](size_t plane) {
    // Not written to.
    auto* const data = const_cast<uint16_t*>(kv_PCT.data() + plane * size);
    return at::from_blob(data, {num_heads, head_size, count},
                         at::TensorOptions().dtype(at::kBFloat16))
        .permute({2, 0, 1});
  };
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto plane = 2 * static_cast<size_t>(layer - layers.begin);
    cache.write(layer, part_THN(plane), part_THN(plane + 1));
  }
  cache.advance(count);
}

kv::Turns turns_of(const weights::ModelConfig& config, int64_t begin, int64_t count) {
  if (begin + count > config.steady_positions()) {
    throw InputError(fmt::format(
        "keys from position {} on turn as the whole text's length says: they are kept exact only",
        config.steady_positions()));
  }
  kv::Turns turns{.num_tokens = static_cast<size_t>(count),
                  .head_size = static_cast<size_t>(config.head_size()),
                  .tables = {},
                  .table_of_layer = {}};
  const std::optional<model::Rotary> local = model::local_rotary(config, at::kCPU);
  turns.tables.push_back(table_of(model::Rotary(config, at::kCPU), begin, count));
  if (local) turns.tables.push_back(table_of(*local, begin, count));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int32_t index = local && config.window_of(layer) > 0 ? 1 : 0;
    turns.table_of_layer.push_back(config.turns(layer) ? index : -1);
  }
  return turns;
}

}  // namespace atl::kv_model
