#pragma once
// --adapter NAME=FOLDER: adapters that requests name, beside the model that a command serves.
#include <memory>
#include <string>
#include <vector>

#include "atoll/model/adapter.h"
#include "atoll/model/model.h"

namespace CLI {
class App;
}

namespace atl::cli {

void add_adapter_arguments(CLI::App& command, std::vector<std::string>& words);

struct NamedAdapters {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<const model::Adapter>> adapters;  // Of all the model's layers.
};

/// Of the model its settings are used. Throws UsageError, InputError.
NamedAdapters load_adapters(const std::vector<std::string>& words, const model::Model& model);

}  // namespace atl::cli
