#include "atoll/model/model.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/model/operations.h"
#include "atoll/weights/families.h"
#include "atoll/weights/hf_folder.h"

namespace atl::model {
namespace {

const weights::ModelConfig& checked(const weights::ModelConfig& config) {
  weights::check(config);
  return config;
}

}  // namespace

Model::Model(const weights::ModelConfig& config, at::Device device, Purpose purpose)
    : config_(checked(config)),
      parameters_(config_, device, purpose),
      decoder_(config_, parameters_, {0, config_.num_layers}) {}

Model::Model(const weights::ModelConfig& config, std::shared_ptr<const weights::ModelFiles> files,
             LayerRange layers)
    : config_(checked(config)),
      parameters_(config_, std::move(files)),
      decoder_(config_, parameters_, layers) {}

void Model::initialise(uint64_t seed) {
  const at::NoGradGuard no_grad;
  const double into_residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.num_layers));
  const double of_norms =
      weights::family_of(config_).design.norm == weights::NormKind::kRmsFromOne ? 0 : 1;
  for (const weights::ParameterSpec& spec : parameters_.specs()) {
    const at::Tensor target = parameters_.view(spec.name);
    if (spec.parts().front().shape.size() == 1) {
      const bool is_norm = !spec.is_bias() && spec.role != weights::Role::kSinks;
      target.fill_(is_norm ? of_norms : 0);
      continue;
    }
    const bool adds =
        spec.role == weights::Role::kAttentionOutput || spec.role == weights::Role::kMlpOutput;
    const double deviation = adds ? into_residual : 0.02;
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

void Model::check_ids(std::span<const int64_t> ids) const {
  for (const int64_t id : ids) {
    if (id >= 0 && id < config_.vocab_size) continue;
    throw InputError(
        fmt::format("token {} is not in the model's vocabulary of {}; is this the "
                    "tokenizer the model was trained with?",
                    id, config_.vocab_size));
  }
}

void Model::check_tokens(const at::Tensor& tokens_BT) const {
  ATOLL_CHECK(tokens_BT.dim() == 2 && tokens_BT.scalar_type() == at::kLong);
  if (!tokens_BT.is_cpu()) return;  // The device reports an index that is out of range itself.
  const at::Tensor contiguous = tokens_BT.contiguous();
  check_ids({contiguous.const_data_ptr<int64_t>(), static_cast<size_t>(contiguous.numel())});
}

at::Tensor Model::hidden_BTC(const at::Tensor& tokens_BT, LayerLosses* losses) const {
  check_length(tokens_BT.size(1));
  check_tokens(tokens_BT);
  return decoder_.hidden_BTC(tokens_BT, {}, losses);
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
    ATOLL_CHECK(row.cache->prepare(row.num_tokens), "there are pages for its tokens");
    num_tokens += row.num_tokens;
  }
  ATOLL_CHECK(!rows.empty() && num_tokens == tokens_1T.size(1));
  const at::Tensor hidden_1TC = decoder_.hidden_BTC(tokens_1T, rows);
  for (const CachedRow& row : rows) row.cache->advance(row.num_tokens);
  return hidden_1TC;
}

at::Tensor Model::layers_1TC(LayerRange layers, const at::Tensor& x_1TC,
                             std::span<const CachedRow> rows) const {
  const at::NoGradGuard no_grad;
  for (const CachedRow& row : rows) check_length(row.cache->length() + row.num_tokens);
  at::Tensor out_1TC = x_1TC;
  for (int64_t index = layers.begin; index < layers.end; ++index) {
    out_1TC = decoder_.layer(index, out_1TC, rows);
  }
  for (const CachedRow& row : rows) row.cache->advance(row.num_tokens);
  return out_1TC;
}

void Model::forget_other_keys(KvCache& cache, int64_t length) const {
  const int64_t steady = config_.steady_positions();
  const bool crosses = cache.length() <= steady && length > steady;
  if (crosses && config_.rope_type == "longrope") cache.truncate(0);
}

at::Tensor Model::logits(const at::Tensor& hidden) const {
  const at::Tensor logits = linear(head_VC(), hidden);
  const double cap = config_.logits_softcap;
  return cap == 0 ? logits : (logits / cap).tanh() * cap;
}

void load_weights(const Model& model, const weights::ModelFiles& files) {
  const at::NoGradGuard no_grad;
  const at::Tensor& values_P = model.parameters().values_P();
  const at::Tensor host_P = values_P.to(at::kCPU);
  files.read({host_P.mutable_data_ptr<float>(), static_cast<size_t>(host_P.numel())});
  if (!values_P.is_cpu()) values_P.copy_(host_P);
}

Model load_model(const std::filesystem::path& folder, at::Device device) {
  const weights::ModelConfig config = weights::load_hf_config(folder).config;
  auto files = std::make_shared<const weights::ModelFiles>(folder, config);
  if (device.is_cpu()) return Model(config, std::move(files));
  Model model(config, device, Purpose::kInference);
  load_weights(model, *files);
  return model;
}

}  // namespace atl::model
