#include "atoll/cli_torch/gateway_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli_torch/api_arguments.h"
#include "atoll/cli_torch/layer_source.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/swarm_place.h"
#include "atoll/serve/chain_generator.h"

namespace atl::cli {
namespace {

struct GatewayArguments {
  ModelArguments model;
  ApiArguments api;
  SwarmArguments swarm;
  std::string wire = "fp32";
  bool deterministic = false;
  double audit = 0.125;
};

constexpr const char* kFooter = R"(
Answers OpenAI's API as `atoll serve --gateway` does (docs/serving_api.md), for a model whose layers
are with the servers of a swarm (docs/serving_swarm.md). Of the model it reads the tokenizer, the
embedding and the head, and layers when it recomputes a part of what servers have made (--audit):
who computes something else than the model says is not used any more, and reported. A server that
dies, hangs or leaves in mid-answer is replaced, and the answer goes on with the tokens that it
would have had. There may be several gateways.

Examples:
  atoll gateway my-model --join @invite.txt --run runs/gateway   by `atoll invite --role gateway`
  atoll gateway my-model --join 127.0.0.1:7070                   in the clear, on this machine)";

void answer(const GatewayArguments& arguments) {
  const auto precision = chain::precision_of(arguments.wire);
  if (!precision) throw UsageError("--wire is fp32, bf16 or int8, not '" + arguments.wire + "'");
  if (arguments.deterministic && *precision != chain::Precision::kFp32) {
    throw UsageError("--deterministic needs --wire fp32: with less, tokens hang on the route");
  }
  watch_interrupts();
  const SystemClock clock;
  const LoadedModel loaded = load_model(arguments.model, model::LayerRange{});
  const weights::ModelConfig& config = loaded.model.config();
  const auto files = std::make_shared<const weights::ModelFiles>(loaded.folder, config);
  const weights::ServedType type = type_of(arguments.model);
  const std::string digest = weights::digest_as_served(read_parts(config, files, clock).digest(),
                                                       config, files->tensors(), type);
  const SwarmPlace place(arguments.swarm, identity::Role::kGateway, clock);
  chain::DirectoryPostOptions post = place.post_options();
  post.watch_digest = digest;
  post.watches = true;
  const auto generator = std::make_shared<serve::ChainGenerator>(
      loaded.model,
      serve::ChainOptions{.post = std::move(post),
                          .digest = digest,
                          .precision = *precision,
                          .max_sessions = arguments.api.service.limits.shares.running,
                          .audit_fraction = arguments.audit,
                          .load =
                              [config, files, type] {
                                return std::make_unique<model::Model>(
                                    config,
                                    weights::as_served(config, files, type, 0, config.num_layers,
                                                       /*num_threads=*/1));
                              }},
      [&](net::Transport::Sink sink) { return place.make_transport(std::move(sink)); }, clock);
  answer_requests(arguments.api, arguments.model, loaded, generator, clock);
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
                    "refuse what makes tokens hang on the route: less than fp32 on the wire");
  command
      ->add_option("--audit", arguments->audit,
                   "so large a part of what servers compute is recomputed here, when nothing else "
                   "is to do, and who computes something else is reported (0: nothing)")
      ->check(real_number(0, 1))
      ->capture_default_str();
  add_api_arguments(*command, arguments->api);
  command->footer(kFooter);
  command->callback([command, arguments] {
    for (const char* option : {"--device", "--strict"}) {
      if (command->count(option) == 0) continue;
      throw UsageError(fmt::format("{}: a gateway has no layers, and computes on the CPU", option));
    }
    arguments->swarm.insecure = arguments->api.service.insecure;
    answer(*arguments);
  });
}

}  // namespace atl::cli
