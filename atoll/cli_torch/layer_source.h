#pragma once
// Where a server of a model's layers has them from: files of its own, or other servers.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/chain/messages.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/swarm_place.h"
#include "atoll/weights/config.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/model_manifest.h"
#include "atoll/weights/model_parts.h"

namespace atl::cli {

struct LayerSource {
  using Stops = std::function<bool()>;

  weights::ModelConfig config;
  std::vector<weights::StoredTensor> tensors;  // As stored; bytes only of what is here.
  weights::ServedAs as;
  std::string name;    // As others call it; empty: nobody does.
  std::string digest;  // With what it is served as.
  /// Files with the layers from `begin` to before `end`, as it is served; null where it was
  /// stopped. Throws InputError.
  std::function<std::shared_ptr<const weights::ModelFiles>(int32_t begin, int32_t end,
                                                           const Stops& stops)>
      files;
  /// What others may have of it: that which is here. Thread-safe.
  std::function<std::optional<Bytes>(const chain::Want&)> lend;
};

/// Reads all of it once, which names it, by LibTorch's number of threads; a bar shows how far.
weights::ModelParts read_parts(const weights::ModelConfig& config,
                               const std::shared_ptr<const weights::ModelFiles>& files,
                               const Clock& clock);

/// Whether that is no model on this machine, but may be one's name.
bool is_no_file(const std::string& model);

/// A model as a swarm serves it, of which nothing else is here.
struct SwarmModel {
  std::string name;
  weights::ServedAs as;
  std::string digest;  // With what it is served as.
  weights::ModelManifest manifest;
};
/// The model that the swarm serves, or the one of that name, as others serve it where its user says
/// nothing of that; waits until somebody does. Nothing where it was stopped. Throws InputError.
std::optional<SwarmModel> model_of_swarm(const std::string& name, weights::ServedAs as,
                                         const SwarmPlace& place, const Clock& clock,
                                         const LayerSource::Stops& stops);

/// Of files. Throws InputError.
LayerSource layers_of_files(const ModelArguments& arguments, const Clock& clock);
/// Of servers, of the model that model_of_swarm() would find, or of one that was fetched before;
/// what is fetched, with the head or without, is kept in the folder `cache` (empty: the user's).
/// Nothing where it was stopped. Throws InputError.
std::optional<LayerSource> layers_of_swarm(const ModelArguments& arguments, bool with_head,
                                           std::filesystem::path cache, const SwarmPlace& place,
                                           const Clock& clock, const LayerSource::Stops& stops);

}  // namespace atl::cli
