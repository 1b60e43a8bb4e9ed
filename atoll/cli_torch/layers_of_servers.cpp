#include "atoll/cli_torch/layers_of_servers.h"

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/chain/rows.h"
#include "atoll/identity/invite.h"
#include "atoll/run/run_authority.h"
#include "atoll/serve/remote_layers.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {

island::FindServers LayersOfServers::finder() const {
  return [this](const run::RunConfig& config, const model::Model& model, const std::string& digest,
                const std::filesystem::path& folder) -> std::unique_ptr<train::FrozenLayers> {
    const run::AdapterOptions& adapter = config.adapter;
    const auto precision = chain::precision_of(adapter.wire);
    if (!precision)
      throw UsageError("adapter.wire is fp32, bf16 or int8, not '" + adapter.wire + "'");
    SwarmArguments arguments{.join = adapter.servers, .option = "--servers", .kind = "trainer"};
    // What an invite brings; the settings name the coordinator from then on.
    const auto place_kept = folder / "servers";
    if (identity::is_invite_word(adapter.servers) || run::has_identity(place_kept)) {
      arguments.folder = place_kept.string();
    }
    places_.push_back(std::make_unique<SwarmPlace>(arguments, identity::Role::kGateway, clock_));
    const SwarmPlace& place = *places_.back();
    serve::RemoteLayersOptions options{
        .post = place.post_options(),
        .digest = digest,
        .precision = *precision,
        .in_flight = adapter.in_flight,
        .log = print_note,
        .stops = [] { return num_interrupts() > 0 || has_to_leave(); }};
    options.post.watches = options.digest;
    return std::make_unique<serve::RemoteLayers>(
        model.config(), std::move(options),
        [&place](net::Transport::Sink sink) { return place.make_transport(std::move(sink)); },
        clock_);
  };
}

}  // namespace atl::cli
