#pragma once
// `atoll train`: one island in this process, or several as processes of their own.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "atoll/run/config.h"
#include "atoll/run/initial_model.h"
#include "atoll/run/process_place.h"

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

/// --processes-per-island, of `train` and `join`. 0: not given.
void add_processes_option(CLI::App& command, int64_t& processes);
/// For `join`, before its command line is read: starts the other processes that it asks for. A
/// wrong number is told by who reads it.
void start_other_processes(char** argv);
/// What is to be as all processes of an island were asked for it.
struct AskedOfProcess {
  run::ProcessPlace place;
  std::string config_file;
  std::vector<std::string> overrides;
  double timeout_s = 0;
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

/// What `atoll-torch` does of `train`; `atoll` has nothing of it.
struct TrainHere {
  std::function<void(const TrainRequest&)> train;
  /// Of an island of several processes, before `train`: meets the others;
  std::function<void(const AskedOfProcess&)> meet;
  /// who is not process 0 does what that says, and nothing else.
  std::function<void(const AskedOfProcess&)> follow;
};

/// Registers `train`. With one island `here` runs it (in atoll-torch) or, in `atoll`, becomes
/// atoll-torch; the islands of a larger run are processes.
void add_train_command(CLI::App& app, char** argv, TrainHere here);

}  // namespace atl::cli
