#pragma once
// What a replica needs before its first step: data, tokenizer, model.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "atoll/base/event.h"
#include "atoll/data/mixture.h"
#include "atoll/model/model.h"
#include "atoll/run/config.h"
#include "atoll/run/initial_model.h"
#include "atoll/run/process_place.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/train/learner.h"

namespace atl::island {

struct Materials {
  data::Mixture mixture;
  tokenizer::Tokenizer tokenizer;
  model::Model model;
  run::ModelTexts texts;  // What checkpoints say of the model beside its weights.
  std::unique_ptr<const model::Model> teacher;  // From which it learns; null: none.
  /// What is trained in the model's place; null: the model is.
  std::unique_ptr<model::Adapter> adapter = nullptr;
  std::unique_ptr<train::FrozenLayers> servers = nullptr;  // Where its layers are; null: here.
  std::string frozen = {};  // The digest of the model that stays as it is; empty: it is trained.

  const model::Parameters& trained() const {
    return adapter != nullptr ? adapter->parameters() : model.parameters();
  }
};

/// The layers of the model with that digest, where the settings say that servers have them, for an
/// island whose folder that is. Throws InputError, UsageError.
using FindServers = std::function<std::unique_ptr<train::FrozenLayers>(
    const run::RunConfig& config, const model::Model& model, const std::string& digest,
    const std::filesystem::path& folder)>;

/// Opens the store, makes the model, and loads or draws its first weights. What the settings leave
/// to the data and to `init` is filled in there. `place`: this process among the island's. Throws
/// InputError and UsageError.
Materials gather(run::RunConfig& config, const std::filesystem::path& run_folder,
                 const run::InitialModel& init, const FindServers& find_servers,
                 const EventSink& events, const run::ProcessPlace& place);

/// Who trains them. They outlive it, and stay where they are.
std::unique_ptr<train::Learner> make_learner(Materials& materials,
                                             const method::TrainOptions& options);

}  // namespace atl::island
