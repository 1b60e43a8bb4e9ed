#include "atoll/model/model.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/model/operations.h"
#include "atoll/weights/families.h"
#include "atoll/weights/hf_folder.h"

namespace atl::model {
namespace {

/// The projections whose results are added to the residual stream.
constexpr std::string_view kIntoResidual[] = {"o_proj.weight", "down_proj.weight",
                                              "attention.dense.weight", "dense_4h_to_h.weight"};

const weights::ModelConfig& checked(const weights::ModelConfig& config) {
  weights::check(config);
  return config;
}

std::unique_ptr<const Decoder> make_decoder(const weights::ModelConfig& config,
                                            const Parameters& parameters) {
  switch (weights::family_of(config).layers) {
    case weights::LayerKind::kLlama:
      return make_llama(config, parameters);
    case weights::LayerKind::kOlmo2:
      return make_olmo2(config, parameters);
    case weights::LayerKind::kGptNeoX:
      return make_gpt_neox(config, parameters);
  }
  __builtin_unreachable();
}

}  // namespace

Model::Model(const weights::ModelConfig& config, at::Device device, Purpose purpose)
    : config_(checked(config)),
      parameters_(config_, device, purpose),
      decoder_(make_decoder(config_, parameters_)) {}

void Model::initialise(uint64_t seed) {
  const at::NoGradGuard no_grad;
  const double into_residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.num_layers));
  for (const weights::ParameterSpec& spec : parameters_.specs()) {
    const at::Tensor target = parameters_.view(spec.name);
    if (spec.shape.size() == 1) {
      target.fill_(spec.name.ends_with(".bias") ? 0 : 1);
      continue;
    }
    const bool residual = std::ranges::any_of(
        kIntoResidual, [&](std::string_view name) { return spec.name.ends_with(name); });
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

void Model::check_length(int64_t length) const {
  if (length <= config_.context()) return;
  throw InputError(fmt::format("{} tokens do not fit into the model's context of {} positions",
                               length, config_.context()));
}

void Model::check_tokens(const at::Tensor& tokens_BT) const {
  ATOLL_CHECK(tokens_BT.dim() == 2 && tokens_BT.scalar_type() == at::kLong);
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

at::Tensor Model::hidden_BTC(const at::Tensor& tokens_BT) const {
  check_length(tokens_BT.size(1));
  check_tokens(tokens_BT);
  return decoder_->hidden_BTC(tokens_BT, {});
}

at::Tensor Model::hidden_BTC(const at::Tensor& tokens_BT, KvCache& cache) const {
  const CachedRow row{&cache, tokens_BT.size(1)};
  return hidden_1TC(tokens_BT, std::span(&row, 1));
}

at::Tensor Model::hidden_1TC(const at::Tensor& tokens_1T, std::span<const CachedRow> rows) const {
  const at::NoGradGuard no_grad;
  check_tokens(tokens_1T);
  int64_t num_tokens = 0;
  for (const CachedRow& row : rows) {
    check_length(row.cache->length() + row.num_tokens);
    num_tokens += row.num_tokens;
  }
  ATOLL_CHECK(!rows.empty() && num_tokens == tokens_1T.size(1));
  const at::Tensor hidden_1TC = decoder_->hidden_BTC(tokens_1T, rows);
  for (const CachedRow& row : rows) row.cache->advance(row.num_tokens);
  return hidden_1TC;
}

at::Tensor Model::logits(const at::Tensor& hidden) const { return linear(head_VC(), hidden); }

void load_weights(const Model& model, const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const at::Tensor& values_P = model.parameters().values_P();
  const at::Tensor host_P = values_P.to(at::kCPU);
  weights::load_hf_weights(folder, model.config(),
                           {host_P.mutable_data_ptr<float>(), static_cast<size_t>(host_P.numel())});
  if (!values_P.is_cpu()) values_P.copy_(host_P);
}

Model load_model(const std::filesystem::path& folder, at::Device device, Purpose purpose) {
  Model model(weights::load_hf_config(folder).config, device, purpose);
  load_weights(model, folder);
  return model;
}

std::vector<std::string> not_finite(const Parameters& parameters) {
  std::vector<std::string> found;
  const at::Tensor finite_P = parameters.values_P().isfinite();
  if (finite_P.all().item<bool>()) return found;
  for (const weights::ParameterSpec& spec : parameters.specs()) {
    const auto num_finite = finite_P.narrow(0, spec.offset, spec.size).sum().item<int64_t>();
    if (num_finite == spec.size) continue;
    found.push_back(fmt::format("tensor '{}' has {} of {} values that are not finite", spec.name,
                                spec.size - num_finite, spec.size));
  }
  return found;
}

}  // namespace atl::model
