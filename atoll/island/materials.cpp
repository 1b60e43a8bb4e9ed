#include "atoll/island/materials.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/island/out_of_memory.h"
#include "atoll/island/run_state.h"
#include "atoll/model/device.h"
#include "atoll/plan/training_memory.h"
#include "atoll/run/events.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_parts.h"

namespace atl::island {
namespace {

void begin_with(const run::InitialModel& init, model::Model& model, const EventSink& events) {
  model::load_weights(model, weights::ModelFiles(init.folder(), model.config()));
  for (const std::string& sentence : model.parameters().not_finite()) {
    if (init.is_strict) {
      throw InputError(fmt::format("'{}': {}", init.path.string(), sentence));
    }
    events(run::WeightsNotFinite{.model = init.path.string(), .what = sentence});
  }
}

/// With the values of another adapter, which a run has made of the model with that digest where it
/// says so; PEFT's folders do not.
void begin_with(const run::InitialModel& init, const weights::ModelConfig& config,
                const std::string& frozen, model::Adapter& adapter) {
  const auto stored = run::first_adapter(init.path, adapter.config(), config);
  const auto state = weights::resolve_adapter(init.path) / "state.json";
  if (std::filesystem::exists(state) &&
      run_state_from_json(read_file(state), state.parent_path().string()).frozen != frozen) {
    throw InputError(
        fmt::format("--init: '{}' is an adapter of another model than that of --frozen (their "
                    "digests differ)",
                    init.path.string()));
  }
  const at::NoGradGuard no_grad;
  adapter.parameters().values_P().copy_(at::from_blob(const_cast<float*>(stored.values_P.data()),
                                                      {std::ssize(stored.values_P)}, at::kFloat));
}

/// The model that train.teacher names. It predicts the tokens of the same tokenizer.
std::unique_ptr<const model::Model> load_teacher(const run::RunConfig& config,
                                                 const data::Mixture& mixture, at::Device device) {
  const std::string& place = config.train.teacher;
  const double share = config.train.teacher_share;
  if (place.empty() && share > 0) {
    throw UsageError(fmt::format(
        "train.teacher_share = {}: name the model to learn from, --train.teacher=MODEL", share));
  }
  if (!place.empty() && share == 0) {
    throw UsageError(
        "train.teacher has no effect with train.teacher_share = 0; give a share of the loss, "
        "--train.teacher_share=1");
  }
  if (place.empty()) return nullptr;
  const auto folder = weights::resolve_model(place);
  const auto file = folder / "tokenizer.json";
  if (std::filesystem::exists(file)) {
    mixture.require_tokenizer(tokenizer::Tokenizer::load(file));
  }
  auto teacher = std::make_unique<const model::Model>(model::load_model(folder, device));
  const int64_t vocab_size = teacher->config().vocab_size;
  if (vocab_size != config.model.vocab_size) {
    throw InputError(fmt::format(
        "train.teacher: '{}' has a vocabulary of {} tokens and the model {}: it cannot teach it",
        place, vocab_size, config.model.vocab_size));
  }
  if (teacher->config().context() < config.train.sequence_length) {
    throw InputError(
        fmt::format("train.teacher: '{}' reads {} tokens at most and train.sequence_length is {}",
                    place, teacher->config().context(), config.train.sequence_length));
  }
  for (const std::string& sentence : teacher->parameters().not_finite()) {
    throw InputError(fmt::format("train.teacher: '{}': {}", place, sentence));
  }
  return teacher;
}

/// The model that stays as it is: with its layers, or without them where servers have those.
model::Model load_frozen(run::RunConfig& config) {
  const auto folder = weights::resolve_model(config.adapter.base);
  const bool is_remote = config.adapter.is_remote();
  auto files = std::make_shared<const weights::ModelFiles>(folder, config.model);
  const model::LayerRange layers{0, is_remote ? 0 : config.model.num_layers};
  model::Model model(config.model, std::move(files), layers);
  if (is_remote) return model;  // Not all of it is read here.
  for (const std::string& sentence : model.parameters().not_finite()) {
    throw InputError(fmt::format("'{}': {}", folder.string(), sentence));
  }
  return model;
}

/// All of its weights are read for it.
std::string frozen_digest(const run::RunConfig& config) {
  const auto files = std::make_shared<const weights::ModelFiles>(
      weights::resolve_model(config.adapter.base), config.model);
  return weights::ModelParts(config.model, files, at::get_num_threads()).digest();
}

/// The settings of the model that a run begins with, or that stays as it is, from its folder.
void take_settings(const std::filesystem::path& folder, run::RunConfig& config,
                   const data::Mixture& mixture) {
  const double router_aux_loss = config.model.router_aux_loss;
  config.model = weights::load_hf_config(folder).config;
  config.model.router_aux_loss = router_aux_loss;  // Training's own, whatever the model's was.
  // Other formats become one that may be written otherwise than the store's.
  if (std::filesystem::exists(folder / "tokenizer.json")) {
    mixture.require_tokenizer(tokenizer::Tokenizer::load(folder / "tokenizer.json"));
  }
}

}  // namespace

Materials gather(run::RunConfig& config, const std::filesystem::path& run_folder,
                 const run::InitialModel& init, const FindServers& find_servers,
                 const EventSink& events, const run::ProcessPlace& place) {
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  data::Mixture mixture = data::Mixture::open(config.data.path);
  tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(mixture.tokenizer_file());
  mixture.require_tokenizer(tokenizer);
  const bool is_frozen = config.adapter.is_on();
  run::require_base(config.adapter);
  if (is_frozen) {
    take_settings(weights::resolve_model(config.adapter.base), config, mixture);
  } else if (init.given()) {
    take_settings(init.folder(), config, mixture);
  }
  const int64_t vocab_size = mixture.vocab_size();
  if (config.model.vocab_size == 0) config.model.vocab_size = vocab_size;
  if (config.model.vocab_size < vocab_size) {
    throw InputError(
        fmt::format("the store '{}' has a vocabulary of {} tokens and the model only {} "
                    "(model.vocab_size); pack the data with the model's tokenizer",
                    config.data.path, vocab_size, config.model.vocab_size));
  }
  run::check(config);
  const at::Device device = model::usable_device(config.train.device, "train.device");
  if (!is_frozen && device.is_cpu()) plan::require_memory(training_fit(config, device, place));
  model::Model model = is_frozen
                           ? load_frozen(config)
                           : model::Model(config.model, device, train::purpose_of(config.train));
  model.set_activation_checkpointing(config.train.activation_checkpointing);
  std::unique_ptr<model::Adapter> adapter;
  std::unique_ptr<train::FrozenLayers> servers;
  const std::string frozen = is_frozen ? frozen_digest(config) : std::string();
  if (is_frozen) {
    adapter = std::make_unique<model::Adapter>(
        config.model, run::adapter_config(config.adapter, config.model),
        model::LayerRange{0, config.model.num_layers}, device, model::Purpose::kTraining);
    adapter->initialise(static_cast<uint64_t>(config.train.seed));
    if (init.given()) begin_with(init, config.model, frozen, *adapter);
    if (config.adapter.is_remote()) servers = find_servers(config, model, frozen, run_folder);
  } else if (init.given()) {
    begin_with(init, model, events);
    run::keep_model_texts(init.folder(), run_folder);
  } else if (place.leads()) {  // The others get its values.
    model.initialise(static_cast<uint64_t>(config.train.seed));
  }
  run::ModelTexts texts = run::kept_model_texts(run_folder, mixture.end_of_text());
  auto teacher = load_teacher(config, mixture, device);
  return {.mixture = std::move(mixture),
          .tokenizer = std::move(tokenizer),
          .model = std::move(model),
          .texts = std::move(texts),
          .teacher = std::move(teacher),
          .adapter = std::move(adapter),
          .servers = std::move(servers),
          .frozen = frozen};
}

namespace {

/// Layers of the model itself, and who trains an adapter of them.
class AdapterHere final : public train::Learner {
 public:
  AdapterHere(Materials& materials, const train::LossOptions& options)
      : layers_(materials.model),
        learner_(materials.model, materials.servers ? *materials.servers : layers_,
                 *materials.adapter, options) {}

  const model::Parameters& parameters() const override { return learner_.parameters(); }
  double add_gradients(std::span<const train::Batch> batches, double scale) override {
    return learner_.add_gradients(batches, scale);
  }
  double cross_entropy(const train::Batch& batch) override { return learner_.cross_entropy(batch); }

 private:
  train::LocalLayers layers_;
  train::AdapterLearner learner_;
};

}  // namespace

std::unique_ptr<train::Learner> make_learner(Materials& materials,
                                             const method::TrainOptions& options) {
  const train::LossOptions loss{.z_loss = options.z_loss,
                                .teacher = materials.teacher.get(),
                                .teacher_share = options.teacher_share};
  if (materials.adapter != nullptr) return std::make_unique<AdapterHere>(materials, loss);
  return std::make_unique<train::ModelLearner>(materials.model, loss);
}

}  // namespace atl::island
