#pragma once
// The settings of a run: config.toml and `--section.key=value`. The coordinator hands its text to
// every island that joins; settings marked local stay each machine's own. LibTorch-free.
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/settings.h"
#include "atoll/method/sync_options.h"
#include "atoll/method/train_options.h"
#include "atoll/run/adapter_options.h"
#include "atoll/weights/config.h"

namespace atl::run {

struct DataOptions {
  std::string path;  // A token store, or text to make one of; empty: the default corpus.
  int64_t vocab_size = 4096;
  double validation_share = 0.02;

  void visit(SettingList& list);
};

struct SwarmOptions {
  int64_t replicas = 0;  // 0: min_replicas.
  int64_t min_replicas = 1;
  std::string pace = "lockstep";
  double outlier_factor = 10;
  double silence_timeout = 30;
  double round_timeout = 600;
  double join_patience = 60;
  double return_patience = 600;

  bool is_elastic() const { return pace == "elastic"; }
  /// Islands that the run begins with.
  int64_t num_replicas() const { return replicas > 0 ? replicas : min_replicas; }

  void visit(SettingList& list);
};

struct RunConfig {
  DataOptions data;
  weights::ModelConfig model;
  std::string preset;  // Of the model; empty once it is applied.
  AdapterOptions adapter;
  method::TrainOptions train;
  method::SyncOptions sync;
  SwarmOptions swarm;

  /// The fields, by section; points into this object.
  SettingList settings();
};

/// The settings whose values are not the defaults'; they point into `config`.
std::vector<Setting> changed_settings(RunConfig& config);

/// The file (if any), then the overrides ("section.key=value"). A model.preset among them is
/// replaced by its sizes, and by what else they say of the model. Throws UsageError.
void apply(RunConfig& config, const std::filesystem::path& file,
           const std::vector<std::string>& overrides);

/// The same with any assignments; `assign` is called again after a preset.
void apply(RunConfig& config, const std::function<void(SettingList&)>& assign);

/// The file and the overrides on the defaults.
RunConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// Puts a method in the place of sync.method = "default": single for a replica that trains alone
/// (it has nobody to agree with), else diloco. In elastic pace it has no delay: nobody waits for an
/// exchange.
void choose_method(RunConfig& config, bool alone);

/// Checks what involves several fields (batch and islands, row and context, ...). Throws UsageError
/// naming the fields.
void check(const RunConfig& config);

/// Throws UsageError when the user gave a setting that the chosen method, or inner optimiser, has
/// no use for. A file may hold such settings, so that one file serves several methods; who writes
/// one beside the method on the command line expects something of it.
void check_used(const RunConfig& config, const std::vector<std::string>& overrides);

/// The parameters that are trained: the model's, or an adapter's. Throws UsageError.
std::vector<weights::ParameterSpec> trained_specs(const RunConfig& config,
                                                  const weights::ModelConfig& model);

/// Whether islands can join when the run is under way. Then they also keep the rounds on disk that
/// are committed after a checkpoint (round_log.h): both take the outer steps of others' rounds.
bool takes_newcomers(const RunConfig& config);

}  // namespace atl::run
