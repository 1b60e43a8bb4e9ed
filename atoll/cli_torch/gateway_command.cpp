#include "atoll/cli_torch/gateway_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/chain/server_session.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli/whole_number.h"
#include "atoll/cli_torch/adapter_arguments.h"
#include "atoll/cli_torch/api_arguments.h"
#include "atoll/cli_torch/kv_arguments.h"
#include "atoll/cli_torch/layer_source.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/swarm_place.h"
#include "atoll/serve/chain_generator.h"
#include "atoll/tokenizer/same_ids.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {
namespace {

constexpr double kGib = int64_t{1} << 30;

struct GatewayArguments {
  ModelArguments model;
  ApiArguments api;
  SwarmArguments swarm;
  std::string wire = "fp32";
  bool deterministic = false;
  double audit = 0.125;
  bool remote_head = false;
  std::string swarm_name;
  int64_t max_guesses = 16;
  std::string draft_model;
  double draft_kv_gib = 0.25;
  bool no_kv_store = false;
  std::string kv_secret;
  std::optional<double> lossy_kv;
  std::string kv_profile;
  std::vector<std::string> adapters;
};

constexpr const char* kFooter = R"(
Answers OpenAI's API as `atoll serve --gateway` does (docs/serving_api.md), for a model whose layers
are with the servers of a swarm (docs/serving_swarm.md). Of the model it reads the tokenizer, the
embedding and the head, and layers when it recomputes a part of what servers have made (--audit):
who computes something else than the model says is not used any more, and reported. A server that
dies, hangs or leaves in mid-answer is replaced, and the answer goes on with the tokens that it
would have had. There may be several gateways. It says that the model is served once all layers are
there; until then requests hear 503.

--draft-model names a small model of the same tokenizer. It runs here and guesses how texts go on,
so that the servers read several tokens in a round trip; what they answer stays the same.

With --remote-head this machine needs no weights: MODEL is a folder with config.json and the
tokenizer, and which model it is the swarm says (where it serves several: --swarm-name). Servers
with --head embed the tokens and draw the next ones, as this gateway says; answers are the same.
Nothing is recomputed: a server is believed.

Examples:
  atoll gateway my-model --join @invite.txt --run runs/gateway   by `atoll invite --role gateway`
  atoll gateway my-model --join 127.0.0.1:7070                   in the clear, on this machine
  atoll gateway my-model --join 127.0.0.1:7070 --draft-model my-small-model
  atoll gateway my-tokenizer --join 127.0.0.1:7070 --remote-head)";

/// The model that guesses, all of it. Throws InputError where its tokens are others.
std::optional<LoadedModel> load_draft(const GatewayArguments& arguments,
                                      const LoadedModel& loaded) {
  if (arguments.draft_model.empty()) return std::nullopt;
  LoadedModel draft =
      load_model({.model = arguments.draft_model, .strict = arguments.model.strict});
  const int64_t vocab_size = loaded.model.config().vocab_size;
  const int64_t draft_vocab_size = draft.model.config().vocab_size;
  if (draft_vocab_size < vocab_size) {
    throw InputError(
        fmt::format("--draft-model: '{}' has {} ids and the model {}: it cannot guess "
                    "what it has no ids for",
                    arguments.draft_model, draft_vocab_size, vocab_size));
  }
  if (!tokenizer::give_same_ids(loaded.tokenizer, draft.tokenizer, vocab_size)) {
    throw InputError(
        fmt::format("--draft-model: '{}' has another tokenizer than the model; name a "
                    "model whose tokens have the same ids",
                    arguments.draft_model));
  }
  return draft;
}

/// What a gateway has of a model, and how servers are to call it.
struct OwnPart {
  LoadedModel loaded;
  std::string name;  // As servers call it; empty: they are not asked.
  std::string digest;
  serve::Auditor::Load load;                             // For audits; none without weights.
  std::shared_ptr<const serve::Rounding> rounding = {};  // For them too.
};

OwnPart with_weights(const GatewayArguments& arguments, const Clock& clock) {
  LoadedModel loaded = load_model(arguments.model, model::LayerRange{});
  const weights::ModelConfig& config = loaded.model.config();
  const auto files = std::make_shared<const weights::ModelFiles>(loaded.folder, config);
  const weights::ServedAs as = served_as(arguments.model);
  std::string digest = weights::digest_as_served(read_parts(config, files, clock).digest(), config,
                                                 files->tensors(), as);
  const auto load = [config, files, as] {
    return std::make_unique<model::Model>(
        config, weights::as_served(config, files, as, 0, config.num_layers, /*num_threads=*/1));
  };
  if (!arguments.kv_profile.empty() && !weights::keeps_narrow_kv(config, files->tensors(), as)) {
    throw UsageError("--kv-profile: keys and values in FP32 are not kept, nor rounded");
  }
  auto rounding = rounding_of(arguments.kv_profile, config, digest);
  return {.loaded = std::move(loaded),
          .name = {},
          .digest = std::move(digest),
          .load = load,
          .rounding = std::move(rounding)};
}

std::filesystem::path secret_file(const GatewayArguments& arguments) {
  if (!arguments.kv_secret.empty() || arguments.swarm.folder.empty()) return arguments.kv_secret;
  return std::filesystem::path(arguments.swarm.folder) / "kv-secret";
}

std::optional<Digest> kv_secret(const GatewayArguments& arguments) {
  if (arguments.no_kv_store) {
    if (arguments.kv_secret.empty()) return std::nullopt;
    throw UsageError("--kv-secret: with --no-kv-store nothing is kept");
  }
  const std::filesystem::path file = secret_file(arguments);
  return file.empty() ? new_secret(file) : kept_secret(file);
}

/// Nothing where it was stopped.
std::optional<OwnPart> without_weights(const GatewayArguments& arguments, const SwarmPlace& place,
                                       const Clock& clock) {
  const auto found = model_of_swarm(arguments.swarm_name, served_as(arguments.model), place, clock,
                                    [] { return num_interrupts() > 0; });
  if (!found) return std::nullopt;
  return OwnPart{.loaded = load_without_weights(arguments.model, found->manifest),
                 .name = found->name,
                 .digest = found->digest,
                 .load = {}};
}

void answer(const GatewayArguments& arguments) {
  const auto precision = chain::precision_of(arguments.wire);
  if (!precision) throw UsageError("--wire is fp32, bf16 or int8, not '" + arguments.wire + "'");
  if (arguments.deterministic && *precision != chain::Precision::kFp32) {
    throw UsageError("--deterministic needs --wire fp32: with less, tokens hang on the route");
  }
  if (arguments.lossy_kv && arguments.deterministic) {
    throw UsageError("--lossy-kv: with --deterministic keys and values are used to the bit");
  }
  if (arguments.lossy_kv && arguments.no_kv_store) {
    throw UsageError("--lossy-kv: with --no-kv-store nothing is kept that could be rounded");
  }
  watch_interrupts();
  const SystemClock clock;
  const SwarmPlace place(arguments.swarm, identity::Role::kGateway, clock);
  // In the place's folder; what is wrong with it is said before a large model is read.
  const std::optional<Digest> secret = kv_secret(arguments);
  const std::optional<OwnPart> own = arguments.remote_head
                                         ? without_weights(arguments, place, clock)
                                         : with_weights(arguments, clock);
  if (!own) return;
  const LoadedModel& loaded = own->loaded;
  NamedAdapters named = load_adapters(arguments.adapters, loaded.model);
  const std::optional<LoadedModel> draft = load_draft(arguments, loaded);
  chain::DirectoryPostOptions post = place.post_options();
  post.watches = own->digest;
  const auto generator = std::make_shared<serve::ChainGenerator>(
      loaded.model,
      serve::ChainOptions{
          .post = std::move(post),
          .digest = own->digest,
          .needs_head = arguments.remote_head,
          .precision = *precision,
          .max_sessions = arguments.api.service.limits.shares.running,
          .max_drafts = arguments.max_guesses,
          .draft = draft ? &draft->model : nullptr,
          .draft_kv_bytes = static_cast<int64_t>(arguments.draft_kv_gib * kGib),
          .audit_fraction = arguments.audit,
          .load = own->load,
          .rounding = own->rounding,
          .kv_secret = secret,
          .new_kv_secret = [file = secret_file(arguments)] { return new_secret(file); },
          .may_round = !arguments.deterministic,
          .round_after = arguments.lossy_kv,
          .adapters = std::move(named.adapters)},
      [&](net::Transport::Sink sink) { return place.make_transport(std::move(sink)); }, clock);
  ApiArguments api = arguments.api;
  if (api.name.empty()) api.name = own->name;
  api.adapter_names = std::move(named.names);
  answer_requests(std::move(api), arguments.model, loaded, generator, clock);
}

/// Of keys and values that servers keep.
void add_kept_arguments(CLI::App& command, GatewayArguments& arguments) {
  command.add_flag("--no-kv-store", arguments.no_kv_store,
                   "servers keep no keys and values of texts that are over, nor copies of others "
                   "for the case that one of them dies");
  command.add_option("--kv-secret", arguments.kv_secret,
                     "a file with the secret that their names and keys follow from; it is made "
                     "where it is missing (default: kv-secret in --run; without that a new one "
                     "each time: nothing is found again after a restart)");
  command
      .add_option("--lossy-kv", arguments.lossy_kv,
                  "SECONDS: what servers have kept of a prompt's beginning may come rounded from "
                  "each other where to the bit it would take longer; requests may say so "
                  "themselves (lossy_kv), and hear of it (usage)")
      ->check(real_number(0, 3600));
  command.add_option("--kv-profile", arguments.kv_profile,
                     "the servers' profile (atoll serve --kv-profile): texts that begin rounded "
                     "are audited as well, with what their servers have had");
}

/// Throws UsageError where words are of no use beside others.
void require_consistent(const CLI::App& command, const GatewayArguments& arguments) {
  if (command.count("--device") > 0) {
    throw UsageError("--device: a gateway has no layers, and computes on the CPU");
  }
  if (command.count("--strict") > 0 && command.count("--draft-model") == 0) {
    throw UsageError("--strict: a gateway without --draft-model checks no weights");
  }
  if (arguments.remote_head && command.count("--audit") > 0) {
    throw UsageError("--audit: a gateway with --remote-head has no weights to recompute with");
  }
  if (command.count("--kv-profile") > 0) {
    if (arguments.remote_head || arguments.audit <= 0) {
      throw UsageError("--kv-profile: it is for audits, and this gateway makes none");
    }
    if (arguments.deterministic || arguments.no_kv_store) {
      throw UsageError("--kv-profile: with --deterministic or --no-kv-store nothing is rounded");
    }
  }
  if (!arguments.remote_head && command.count("--swarm-name") > 0) {
    throw UsageError("--swarm-name: without --remote-head it is MODEL that is served");
  }
}

}  // namespace

void add_gateway_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("gateway", "Answer OpenAI's API for a model that a swarm serves");
  auto arguments = std::make_shared<GatewayArguments>();
  add_model_arguments(*command, arguments->model);
  add_swarm_arguments(*command, arguments->swarm, identity::Role::kGateway);
  command
      ->add_option("--wire", arguments->wire,
                   "how activations travel: fp32 (exact), bf16, int8 (a quarter of the bytes)")
      ->capture_default_str();
  command->add_flag("--deterministic", arguments->deterministic,
                    "refuse what makes tokens hang on the route: less than fp32 on the wire, keys "
                    "and values that were rounded");
  command
      ->add_option("--audit", arguments->audit,
                   "so large a part of what servers compute is recomputed here, when nothing else "
                   "is to do, and who computes something else is reported (0: nothing)")
      ->check(real_number(0, 1))
      ->capture_default_str();
  command->add_flag("--remote-head", arguments->remote_head,
                    "no weights here: servers with --head embed, and draw from the seed that this "
                    "gateway sends; of MODEL only settings and tokenizer are read");
  command->add_option("--swarm-name", arguments->swarm_name,
                      "with --remote-head: which of the models that the swarm serves");
  command
      ->add_option("--max-guesses", arguments->max_guesses,
                   "guesses under way at most, all texts together (0: none)")
      ->check(whole_number<int64_t>(0, chain::kMostAhead))
      ->capture_default_str();
  CLI::Option* draft = command->add_option(
      "--draft-model", arguments->draft_model,
      "a small model of the same tokenizer, which guesses tokens: same answers, sooner");
  command
      ->add_option("--draft-kv-gib", arguments->draft_kv_gib,
                   "memory for its keys and values, in GiB; texts that do not fit go without")
      ->needs(draft)
      ->check(real_number(0.001, 1 << 20))
      ->capture_default_str();
  add_adapter_arguments(*command, arguments->adapters);
  add_kept_arguments(*command, *arguments);
  add_api_arguments(*command, arguments->api);
  command->footer(kFooter);
  command->callback([command, arguments] {
    require_consistent(*command, *arguments);
    arguments->swarm.insecure = arguments->api.service.insecure;
    answer(*arguments);
  });
}

}  // namespace atl::cli
