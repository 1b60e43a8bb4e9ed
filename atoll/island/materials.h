#pragma once
// What a replica needs before its first step: data, tokenizer, model.
#include <filesystem>
#include <memory>

#include "atoll/base/event.h"
#include "atoll/data/mixture.h"
#include "atoll/model/model.h"
#include "atoll/run/config.h"
#include "atoll/run/initial_model.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::island {

struct Materials {
  data::Mixture mixture;
  tokenizer::Tokenizer tokenizer;
  model::Model model;
  run::ModelTexts texts;  // What checkpoints say of the model beside its weights.
  std::unique_ptr<const model::Model> teacher;  // From which it learns; null: none.
};

/// Opens the store, makes the model, and loads or draws its first weights. What the settings leave
/// to the data and to `init` is filled in there. Throws InputError and UsageError.
Materials gather(run::RunConfig& config, const std::filesystem::path& run_folder,
                 const run::InitialModel& init, const EventSink& events);

}  // namespace atl::island
