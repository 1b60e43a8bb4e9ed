#pragma once
// `atoll train`: one island in this process, or several as processes of their own.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "atoll/run/config.h"
#include "atoll/run/initial_model.h"

namespace CLI {
class App;
}

namespace atl::cli {

/// Everything `atoll train` was asked for, ready to start: settings checked, the data packed.
struct TrainRequest {
  std::filesystem::path folder;
  run::InitialModel init;
  run::RunConfig config;
  bool json = false;
};

/// --init and --strict, of `train` and `join`.
void add_init_options(CLI::App& command, run::InitialModel& init);

/// The model that stays as it is where an adapter is trained.
struct FrozenArguments {
  std::string base;
  std::string servers;
  std::string kind;  // Of the adapter; of a run that is joined its coordinator says it.
};
/// --frozen and --servers, of `train` and `join`.
void add_frozen_options(CLI::App& command, FrozenArguments& frozen);
/// What --servers stands for: an invite, or HOST:PORT. Throws UsageError, InputError.
std::string servers_said(const std::string& argument);
/// What they say, as settings.
void add_frozen_overrides(const FrozenArguments& frozen, std::vector<std::string>& overrides);

/// Registers `train`. With one island `train_here` runs it (in atoll-torch) or, in `atoll`, becomes
/// atoll-torch; the islands of a larger run are processes.
void add_train_command(CLI::App& app, char** argv,
                       std::function<void(const TrainRequest&)> train_here);

}  // namespace atl::cli
