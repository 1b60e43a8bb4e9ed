#include "atoll/cli_torch/layer_source.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/mutex.h"
#include "atoll/base/name.h"
#include "atoll/base/progress.h"
#include "atoll/chain/lease.h"
#include "atoll/cli_torch/api_arguments.h"
#include "atoll/serve/model_fetcher.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using weights::ModelFiles;
using weights::ModelParts;

fs::path users_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "atoll" / "models";
  if (home != nullptr && *home != '\0') return fs::path(home) / ".cache" / "atoll" / "models";
  throw UsageError("--model-cache says where a model's layers are kept: there is no HOME");
}

static_assert(chain::kManifestPart == weights::kManifestPart);

std::optional<Bytes> lent(const ModelParts& parts, const chain::Want& want) {
  if (want.model != parts.digest()) return std::nullopt;
  return want.piece == chain::kHashesPiece ? parts.hashes(want.part)
                                           : parts.piece(want.part, want.piece);
}

serve::ModelFetcherOptions fetcher_options(const SwarmPlace& place, fs::path cache) {
  return {.post = place.post_options(),
          .own_name = place.name(),
          .cache = std::move(cache),
          .log = print_note};
}

net::TransportFactory transports_of(const SwarmPlace& place) {
  return [&place](net::Transport::Sink sink) { return place.make_transport(std::move(sink)); };
}

/// Nothing where it was stopped.
std::optional<SwarmModel> find_model(serve::ModelFetcher& fetcher, const std::string& name,
                                     weights::ServedAs as, const LayerSource::Stops& stops) {
  const bool is_said = as != weights::ServedAs();
  const auto found = fetcher.find(name, is_said, stops);
  if (!found) return std::nullopt;
  auto manifest = fetcher.manifest_of(*found, stops);
  if (!manifest) return std::nullopt;
  if (const std::string others = chain::type_of(found->digest); !is_said && !others.empty()) {
    const auto known = weights::ServedAs::parse(others);
    if (!known) throw InputError(fmt::format("the swarm serves it in '{}'", printable(others)));
    as = *known;
  }
  print_note(
      fmt::format("'{}' ({}) is the model", printable(found->name), found->digest.substr(0, 8)));
  std::string digest = weights::digest_as_served(chain::files_of(found->digest), manifest->config,
                                                 manifest->tensors, as);
  return SwarmModel{
      .name = found->name, .as = as, .digest = std::move(digest), .manifest = *std::move(manifest)};
}

/// What was fetched so far: a thread fetches, another one lends.
struct Fetched {
  explicit Fetched(serve::ModelFetcher fetcher_in) : fetcher(std::move(fetcher_in)) {}

  serve::ModelFetcher fetcher;
  Mutex mutex;
  std::shared_ptr<const ModelParts> parts ATOLL_GUARDED_BY(mutex);
};

}  // namespace

ModelParts read_parts(const weights::ModelConfig& config,
                      const std::shared_ptr<const ModelFiles>& files, const Clock& clock) {
  double total = 0;
  for (const weights::StoredTensor& tensor : files->tensors()) {
    total += static_cast<double>(tensor.bytes.size());
  }
  ProgressBar bar("reading the model", total, clock);
  Mutex mutex;
  double done = 0;
  return {config, files, at::get_num_threads(), [&](uint64_t bytes) {
            const MutexLock lock(mutex);
            bar.update(done += static_cast<double>(bytes));
          }};
}

bool is_no_file(const std::string& model) {
  std::error_code none;
  return model.find('/') == std::string::npos && !fs::exists(model, none);
}

LayerSource layers_of_files(const ModelArguments& arguments, const Clock& clock) {
  const fs::path folder = weights::resolve_model(arguments.model);
  const weights::ModelConfig config = weights::load_hf_config(folder).config;
  const weights::ServedAs as = served_as(arguments);
  const auto files = std::make_shared<const ModelFiles>(folder, config);
  const auto parts = std::make_shared<const ModelParts>(read_parts(config, files, clock));
  return {.config = config,
          .tensors = files->tensors(),
          .as = as,
          .name = usual_name(arguments),
          .digest = weights::digest_as_served(parts->digest(), config, files->tensors(), as),
          .files =
              [config, files, as](int32_t begin, int32_t end, const LayerSource::Stops&) {
                return weights::as_served(config, files, as, begin, end, at::get_num_threads());
              },
          .lend = [parts](const chain::Want& want) { return lent(*parts, want); }};
}

std::optional<SwarmModel> model_of_swarm(const std::string& name, weights::ServedAs as,
                                         const SwarmPlace& place, const Clock& clock,
                                         const LayerSource::Stops& stops) {
  serve::ModelFetcher fetcher(fetcher_options(place, {}), transports_of(place), clock);
  return find_model(fetcher, name, as, stops);
}

std::optional<LayerSource> layers_of_swarm(const ModelArguments& arguments, bool with_head,
                                           fs::path cache, const SwarmPlace& place,
                                           const Clock& clock, const LayerSource::Stops& stops) {
  if (cache.empty()) cache = users_cache();
  const auto fetched = std::make_shared<Fetched>(
      serve::ModelFetcher(fetcher_options(place, std::move(cache)), transports_of(place), clock));
  const auto model = find_model(fetched->fetcher, arguments.model, served_as(arguments), stops);
  if (!model || !fetched->fetcher.open({model->name, model->digest}, stops)) return std::nullopt;
  const weights::ServedAs as = model->as;
  const weights::ModelManifest& manifest = model->manifest;
  print_note("its layers come from other servers");
  {
    const MutexLock lock(fetched->mutex);
    fetched->parts = std::make_shared<const ModelParts>(
        manifest, ModelParts::Hashes(),
        std::make_shared<const ModelFiles>(manifest.config, manifest.tensors, nullptr));
  }
  const auto files = [fetched, as, with_head](
                         int32_t begin, int32_t end,
                         const LayerSource::Stops& stop) -> std::shared_ptr<const ModelFiles> {
    const auto parts = fetched->fetcher.fetch(begin, end, with_head, stop);
    if (parts == nullptr) return nullptr;
    {
      const MutexLock lock(fetched->mutex);
      fetched->parts = parts;
    }
    return weights::as_served(parts->manifest().config, parts->files(), as, begin, end,
                              at::get_num_threads());
  };
  const auto lend = [fetched](const chain::Want& want) {
    const auto parts = [&] {
      const MutexLock lock(fetched->mutex);
      return fetched->parts;
    }();
    return lent(*parts, want);
  };
  return LayerSource{.config = manifest.config,
                     .tensors = manifest.tensors,
                     .as = as,
                     .name = model->name,
                     .digest = model->digest,
                     .files = files,
                     .lend = lend};
}

}  // namespace atl::cli
