#pragma once
// The settings of a run that trains an adapter of a model that stays as it is. LibTorch-free.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/settings.h"
#include "atoll/weights/adapter.h"
#include "atoll/weights/config.h"

namespace atl::run {

struct AdapterOptions {
  std::string kind = "none";
  int64_t rank = 8;
  double alpha = 16;
  std::string targets;
  int64_t prompt_tokens = 16;
  std::string base;
  std::string servers;
  std::string wire = "fp32";
  int64_t in_flight = 4;

  bool is_on() const { return kind != "none"; }
  bool is_remote() const { return !servers.empty(); }
  void visit(SettingList& list);
};

/// Throws UsageError where an adapter is trained and its model not named, or the other way round:
/// on the machine that trains.
void require_base(const AdapterOptions& options);

/// Throws UsageError where one of `overrides`, which the user gave, has no use.
void check_used(const AdapterOptions& options, const std::vector<std::string>& overrides);

/// What is trained. Throws UsageError where the model does not have what it changes.
weights::AdapterConfig adapter_config(const AdapterOptions& options,
                                      const weights::ModelConfig& model);

/// The adapter in a folder or run, with whose values another one of the same kind begins (--init).
/// Throws UsageError where there is none, or one of another kind, rank, alpha or targets.
weights::StoredAdapter first_adapter(const std::filesystem::path& init,
                                     const weights::AdapterConfig& wanted,
                                     const weights::ModelConfig& model);

}  // namespace atl::run
