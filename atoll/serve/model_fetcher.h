#pragma once
// A model whose files are not here: which one a swarm serves, its manifest, and the layers that
// this machine is to serve, from servers that have them. What came is kept in a folder
// (weights/part_store.h), and what is there is not fetched again. chain/part_fetch.h thinks; here
// are connections, which stand as long as something is missing.
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/directory_post.h"
#include "atoll/chain/part_fetch.h"
#include "atoll/net/transport.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/model_manifest.h"
#include "atoll/weights/model_parts.h"
#include "atoll/weights/part_store.h"

namespace atl::serve {

struct ModelFetcherOptions {
  chain::DirectoryPostOptions post;  // Of the swarm; what is watched is not its user's business.
  std::string own_name;              // Of this server, which does not ask itself.
  std::filesystem::path cache;       // A folder for models; empty: nothing is kept.
  std::function<void(const std::string&)> log;
};

class ModelFetcher {
 public:
  using Stops = std::function<bool()>;
  struct Found {
    std::string name;
    std::string digest;  // As a lease has it, with the type (chain/lease.h).
  };

  /// The clock outlives it.
  ModelFetcher(ModelFetcherOptions options, net::TransportFactory make_transport,
               const Clock& clock);

  /// Waits until some server of the swarm has a model (of that name, where there is one); after a
  /// few seconds one of the cache does as well, where it has just one. With `any_type` those that
  /// compute in different types are one. Throws InputError where the swarm has several, or none of
  /// that name. Nothing: stopped.
  std::optional<Found> find(const std::string& name, bool any_type, const Stops& stops);
  /// Fetches its manifest. Nothing: stopped.
  std::optional<weights::ModelManifest> manifest_of(const Found& model, const Stops& stops);
  /// The same, for fetch(). False: stopped.
  bool open(const Found& model, const Stops& stops);
  const weights::ModelManifest& manifest() const { return store_->manifest(); }

  /// These layers, and what is in none, checked to the last bit; what is missing is fetched. Null:
  /// stopped. Throws InputError where the disk fails or is too small.
  std::shared_ptr<const weights::ModelParts> fetch(int32_t begin, int32_t end, bool with_head,
                                                   const Stops& stops);

 private:
  class Lines;

  /// False: stopped.
  bool fetch_part(std::unique_ptr<Lines>& lines, int32_t part, const Stops& stops,
                  const std::function<void()>& kept);
  void require_room(std::span<const int32_t> parts, const std::string& what) const;

  const ModelFetcherOptions options_;
  const net::TransportFactory make_transport_;
  const Clock& clock_;
  std::string digest_;
  std::unique_ptr<weights::PartStore> store_;
};

}  // namespace atl::serve
