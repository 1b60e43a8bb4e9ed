// A model behind OpenAI's API on this machine, or some of its layers for a swarm.
#include "atoll/cli_torch/serve_command.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/machine_memory.h"
#include "atoll/base/process.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli_torch/adapter_arguments.h"
#include "atoll/cli_torch/api_arguments.h"
#include "atoll/cli_torch/kv_arguments.h"
#include "atoll/cli_torch/layer_source.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/cli_torch/sampling_arguments.h"
#include "atoll/cli_torch/swarm_place.h"
#include "atoll/net/address.h"
#include "atoll/run/link_rate.h"
#include "atoll/serve/adapter_shelf.h"
#include "atoll/serve/block_server.h"
#include "atoll/serve/local_generator.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kGib = int64_t{1} << 30;
constexpr double kUsualShare = 0.9;                  // Of the machine's memory.
constexpr double kProgramBytes = 0.25 * kGib;        // LibTorch, buffers, what was sent.
constexpr size_t kMaxQueuedBytes = size_t{1} << 30;  // Of what comes.

struct ServeArguments {
  ModelArguments model;
  bool gateway = false;
  ApiArguments api;
  SwarmArguments swarm;
  std::vector<std::string> adapters;  // NAME=FOLDER.
  std::string blocks;
  bool head = false;
  bool deterministic = false;
  std::string advertise;
  std::string model_cache;
  std::string upload_rate;
  KvStoreArguments kept;
  bool listens = false;   // Its user says where.
  double kv_gib = 0;      // 0: a tenth of the memory, 2 at most.
  double memory_gib = 0;  // 0: most of the machine's.
  int64_t max_guesses = serve::EngineOptions().max_guesses;
};

constexpr const char* kFooter = R"(
With --gateway: one command, one address. Whatever speaks OpenAI's API can use it, and a browser
finds a page to chat at / (docs/serving_api.md). Requests are answered together: each pass over the
weights makes a token of every answer. What prompts have in common is read once. On the CPU an
answer has the same tokens whatever else is asked meanwhile. Answers can be kept right by a JSON
schema, and call tools (docs/structured_output.md). Other machines may ask over HTTPS
(--certificate, --private-key) with a key (--keys: a file with `NAME SECRET` on each line).
--insecure lifts both.

With --join: some of the model's layers, as one of several servers of a swarm, for which `atoll
gateway` answers (docs/serving_swarm.md). Only those layers are kept in memory; which they are the
coordinator says, unless --blocks does. Without MODEL, or with only the name of one, they come from
other servers of the swarm, checked to the last bit, and are kept in --model-cache for the next
time. It says when it has joined, and where nobody answers: it may be started before the
coordinator. It may be killed at any time: others take its place. SIGTERM and Ctrl-C end it once its
texts are with others, or over where nobody else has its layers; a second one ends it at once. What
computes in another --dtype is another model: chains never mix them.

Examples:
  atoll serve my-model --gateway
  atoll serve my-model --gateway --adapter poems=runs/poems --adapter code=runs/code
  atoll serve model.gguf --gateway --listen 127.0.0.1:8080 --kv-gib 8
  curl http://127.0.0.1:8000/v1/completions -d '{"model": "my-model", "prompt": "Once"}'

  atoll serve my-model --join @invite.txt --run runs/server      by `atoll invite --role server`
  atoll serve my-model --join 127.0.0.1:7070 --blocks 0:16       in the clear, layers 0 to 15
  atoll serve --join @invite.txt --run runs/server               without files of the model
  atoll serve my-model --join @invite.txt --run runs/server --dtype int8)";

double memory_bytes(const ServeArguments& arguments) {
  return arguments.memory_gib > 0 ? arguments.memory_gib * kGib
                                  : kUsualShare * usable_memory_bytes();
}

int64_t kv_bytes(const ServeArguments& arguments) {
  if (arguments.kv_gib > 0) return static_cast<int64_t>(arguments.kv_gib * kGib);
  return static_cast<int64_t>(std::min(2 * kGib, memory_bytes(arguments) / 10));
}

/// Without their bytes.
std::vector<weights::StoredTensor> tensors_as_served(
    const weights::ModelConfig& config, const std::vector<weights::StoredTensor>& tensors,
    weights::ServedType type) {
  const std::vector<weights::ParameterSpec> specs = weights::parameter_specs(config);
  std::vector<weights::StoredTensor> served;
  for (size_t i = 0; i < specs.size(); ++i) {
    served.push_back(weights::as_served(tensors.at(i), specs[i], type));
  }
  return served;
}

/// Throws InputError where all of the model is more than this machine's memory: it would be read
/// from the disk again for each token.
void require_room(const ServeArguments& arguments) {
  if (arguments.model.device != "cpu") return;
  const std::filesystem::path folder = weights::resolve_model(arguments.model.model);
  const weights::ModelConfig config = weights::load_hf_config(folder).config;
  const weights::ModelFiles files(folder, config);
  double bytes = 0;
  for (const auto& tensor :
       tensors_as_served(config, files.tensors(), served_as(arguments.model).type)) {
    bytes += static_cast<double>(weights::num_bytes(tensor));
  }
  const auto kv = static_cast<double>(kv_bytes(arguments));
  const double memory = memory_bytes(arguments);
  if (bytes + kv + kProgramBytes <= memory) return;
  throw InputError(
      fmt::format("the weights of '{}' have {}, keys and values {} and the program {}: that is "
                  "more than the {} "
                  "that may be used here (--kv-gib, --memory-gib); several servers can share its "
                  "layers (--join)",
                  folder.string(), format_bytes(bytes), format_bytes(kv),
                  format_bytes(kProgramBytes), format_bytes(memory)));
}

/// Throws UsageError where keys and values are of another type than can be kept.
void require_kept_type(const ServeArguments& arguments, const LayerSource& source) {
  const bool is_narrow = arguments.model.device == "cpu" &&
                         weights::keeps_narrow_kv(source.config, source.tensors, source.as);
  if (is_narrow || arguments.kept.folder.empty()) return;
  throw UsageError("--kv-store: keys and values in fp32 are not kept; say --kv-dtype bf16");
}

void serve_alone(const ServeArguments& arguments) {
  require_room(arguments);
  const LoadedModel loaded = load_model(arguments.model);
  const SystemClock clock;
  std::unique_ptr<serve::KvDesk> desk;
  std::optional<serve::KeptTexts> kept;
  std::function<kv::ChunkNames(const std::string& adapter)> names_of;
  if (!arguments.kept.folder.empty()) {
    const LayerSource source = layers_of_files(arguments.model, clock);
    require_kept_type(arguments, source);
    desk = own_kv_desk(arguments.kept, kv_bytes(arguments), source.config, source.digest, clock);
    const Digest secret = kept_secret(fs::path(arguments.kept.folder) / "secret");
    names_of = [secret, model = source.digest](const std::string& adapter) {
      return kv::ChunkNames(secret, model + adapter);
    };
    kept.emplace(desk.get(), std::vector{names_of("")});
  }
  ApiArguments api = arguments.api;
  serve::EngineOptions options{.kv_bytes = kv_bytes(arguments),
                               .max_running = api.service.limits.shares.running,
                               .max_guesses = arguments.max_guesses};
  NamedAdapters named = load_adapters(arguments.adapters, loaded.model);
  for (const auto& adapter : named.adapters) {
    if (kept) kept->names.push_back(names_of(serve::digest_of(*adapter)));
  }
  api.adapter_names = std::move(named.names);
  options.adapters = std::move(named.adapters);
  options.kept = std::move(kept);
  answer_requests(std::move(api), arguments.model, loaded,
                  std::make_shared<serve::LocalGenerator>(loaded.model, options), clock);
}

/// "A:B": from A to before B.
std::optional<chain::Span> named_layers(const std::string& text) {
  if (text.empty()) return std::nullopt;
  chain::Span layers;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, layers.begin);
  const bool has_colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto second = has_colon ? std::from_chars(first.ptr + 1, end, layers.end) : first;
  const bool is_good = has_colon && second.ec == std::errc() && second.ptr == end;
  if (!is_good || layers.begin < 0 || layers.size() <= 0) {
    throw UsageError(
        fmt::format("--blocks {}: A:B means the layers from A to before B, as in 0:16", text));
  }
  return layers;
}

void require_layers(const std::optional<chain::Span>& named, bool with_head,
                    const weights::ModelConfig& config) {
  if (!named) return;
  if (named->end > config.num_layers) {
    throw UsageError(fmt::format("--blocks {}:{}: the model's layers are 0:{}", named->begin,
                                 named->end, config.num_layers));
  }
  if (with_head && named->begin > 0 && named->end < config.num_layers) {
    throw UsageError(fmt::format(
        "--head: who has the first or the last of the model's {} layers can use embedding and "
        "head, and --blocks {}:{} has neither",
        config.num_layers, named->begin, named->end));
  }
}

struct PartBytes {
  double layer = 0;  // The largest.
  double head = 0;   // What is in no layer.
};
PartBytes part_bytes(const LayerSource& source) {
  auto layers = weights::tensors_by_part(source.config);
  const auto served = tensors_as_served(source.config, source.tensors, source.as.type);
  PartBytes bytes{.head = static_cast<double>(weights::part_bytes(served, layers.back()))};
  layers.pop_back();
  for (const std::vector<size_t>& layer : layers) {
    bytes.layer = std::max(bytes.layer, static_cast<double>(weights::part_bytes(served, layer)));
  }
  return bytes;
}

/// How many layers fit into this machine's memory. Throws InputError where it is none, or fewer
/// than its user has named.
int32_t fitting_layers(const ServeArguments& arguments, const LayerSource& source,
                       const std::optional<chain::Span>& named) {
  const weights::ModelConfig& config = source.config;
  const double memory = memory_bytes(arguments);
  const PartBytes each = part_bytes(source);
  const double program = kProgramBytes + (arguments.head ? each.head : 0);
  const auto under_way = static_cast<double>(kv_bytes(arguments));
  const double kv =
      under_way + static_cast<double>(kv_store_memory(arguments.kept, kv_bytes(arguments)));
  // A page of keys and values is there for all of a server's layers.
  const double element = weights::keeps_narrow_kv(config, source.tensors, source.as)
                             ? sizeof(c10::BFloat16)
                             : sizeof(float);
  const double page = 2.0 * element * model::KvPool::kPagePositions *
                      static_cast<double>(config.num_kv_heads * config.head_size());
  const auto fitting = static_cast<int64_t>(
      std::max(0.0, std::min((memory - kv - program) / each.layer, under_way / page)));
  const int64_t wanted = named ? named->size() : 1;
  if (fitting < wanted) {
    throw InputError(fmt::format(
        "{} of this model's {} layers have {} each, keys and values {} and the program{} {}: that "
        "is "
        "more than the {} that may be used here; it has room for {} layers (--blocks, --kv-gib, "
        "--memory-gib)",
        wanted, config.num_layers, format_bytes(each.layer), format_bytes(kv),
        arguments.head ? " with the head" : "", format_bytes(program), format_bytes(memory),
        fitting));
  }
  return static_cast<int32_t>(std::min(fitting, config.num_layers));
}

/// For a server's desk; nothing where it keeps none. Throws UsageError.
std::optional<serve::KvDeskOptions> kept_options(const ServeArguments& arguments,
                                                 const LayerSource& source) {
  require_kept_type(arguments, source);
  const bool keeps = arguments.kept.memory_gib != 0 || !arguments.kept.folder.empty();
  if (!keeps || !weights::keeps_narrow_kv(source.config, source.tensors, source.as)) {
    if (arguments.kept.profile.empty()) return std::nullopt;
    throw UsageError(
        "--kv-profile: nothing is kept here; say --kv-dtype bf16, and leave --kv-store-memory-gib "
        "above 0 or name a --kv-store");
  }
  return kv_desk_options(arguments.kept, kv_bytes(arguments), source.config, source.digest);
}

/// What is wrong with the words is said before a large model is read.
void require_server_words(const ServeArguments& arguments) {
  if (arguments.model.device != "cpu") {
    throw UsageError("--device: layers are served on the CPU as yet");
  }
  require_neighbour_arguments(arguments.kept);
}

void serve_layers(const ServeArguments& arguments) {
  require_server_words(arguments);
  if (arguments.model.threads > 0) at::set_num_threads(static_cast<int>(arguments.model.threads));
  const SystemClock clock;
  const auto stops = [] { return num_interrupts() > 0; };
  const auto named = named_layers(arguments.blocks);
  const double upload_rate =
      arguments.upload_rate.empty() ? 0 : run::parse_link_rate(arguments.upload_rate);
  if (!arguments.advertise.empty()) net::require_address("--advertise", arguments.advertise);
  const SwarmPlace place(arguments.swarm, identity::Role::kServer, clock);
  swarm::Inbox<net::Event> inbox(kMaxQueuedBytes);
  const auto transport = place.make_transport([&](net::Event event) {
    const size_t size = net::frame_bytes(event);
    inbox.push(std::move(event), size);
  });
  const auto bound = transport->listen(arguments.listens ? arguments.api.service.listen
                                                         : place.listening_address());
  if (!bound) throw InputError(bound.error().message);
  const std::string address = arguments.advertise.empty() ? *bound : arguments.advertise;
  place.require_reachable(address);
  const bool has_files = !is_no_file(arguments.model.model);
  std::optional<LayerSource> source;
  if (!has_files) {
    source = layers_of_swarm(arguments.model, arguments.head, arguments.model_cache, place, clock,
                             stops);
    if (!source) return;
    require_layers(named, arguments.head, source->config);
  } else {
    require_layers(named, arguments.head,
                   weights::load_hf_config(weights::resolve_model(arguments.model.model)).config);
    source = layers_of_files(arguments.model, clock);
  }
  const weights::ModelConfig& config = source->config;
  const int32_t max_layers = fitting_layers(arguments, *source, named);
  auto kept = kept_options(arguments, *source);
  serve::BlockServer server(
      {.post = place.post_options(),
       .lease = {.name = place.name(),
                 .address = address,
                 .model = arguments.api.name.empty() ? source->name : arguments.api.name,
                 .digest = source->digest,
                 .num_layers = static_cast<int32_t>(config.num_layers),
                 .max_layers = max_layers,
                 .has_head = arguments.head,
                 .has_files = has_files,
                 .is_fixed = named.has_value(),
                 .layers = named.value_or(chain::Span{}),
                 .links = {}},
       .engine = {.kv_bytes = kv_bytes(arguments), .has_head = arguments.head},
       .load = [&](model::LayerRange layers,
                   const LayerSource::Stops& ends) -> std::unique_ptr<model::Model> {
         auto files = source->files(static_cast<int32_t>(layers.begin),
                                    static_cast<int32_t>(layers.end), ends);
         if (files == nullptr) return nullptr;
         return std::make_unique<model::Model>(config, std::move(files), layers);
       },
       .lending = {.read = source->lend, .bits_per_second = upload_rate},
       .kept = std::move(kept),
       .log = print_note,
       .joined =
           [&] {
             fmt::print("'{}' has joined the swarm of {}, at {}\n", place.name(),
                        place.coordinator(), address);
             flush_standard_output();
           }},
      *transport, inbox, clock);
  server.run(stops);
}

void serve_model(const ServeArguments& arguments) {
  const bool joins = !arguments.swarm.join.empty() || !arguments.swarm.folder.empty();
  if (arguments.gateway && joins) {
    throw UsageError(
        "--gateway answers with all of the model here, and --join serves some of its layers to a "
        "swarm: say one of them");
  }
  if (!arguments.gateway && !joins) {
    throw UsageError(
        "say --gateway to answer requests with all of the model here, or --join to serve some of "
        "its layers to a swarm, for which `atoll gateway` answers");
  }
  if (arguments.deterministic && arguments.model.device != "cpu") {
    throw UsageError(
        "--deterministic: devices sum in an order that hangs on what is read together");
  }
  if (!joins && arguments.model.model.empty()) {
    throw UsageError("name a model: a folder, a GGUF file or a run directory");
  }
  watch_interrupts();
  if (joins) {
    serve_layers(arguments);
  } else {
    serve_alone(arguments);
  }
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("serve", "Serve a model behind OpenAI's API, or some of its layers");
  auto arguments = std::make_shared<ServeArguments>();
  add_model_arguments(*command, arguments->model);
  command->get_option("model")->required(false)->description(
      "a Hugging Face model folder, a GGUF file, or a run directory (its newest checkpoint); "
      "with --join also the name of a model that others serve, or nothing: the one they do");
  command->add_flag("--gateway", arguments->gateway, "answer requests, all of the model here");
  add_swarm_arguments(*command, arguments->swarm, identity::Role::kServer);
  add_adapter_arguments(*command, arguments->adapters);
  command->add_option("--blocks", arguments->blocks,
                      "A:B: the layers from A to before B (default: as the coordinator says)");
  command->add_flag("--deterministic", arguments->deterministic,
                    "refuse what makes tokens hang on what else is asked: devices beside the CPU");
  command->add_flag("--head", arguments->head,
                    "the embedding and the head as well, for gateways that have none: of use with "
                    "the first or the last layers (--blocks)");
  command->add_option("--advertise", arguments->advertise,
                      "HOST:PORT where others of the swarm reach this server (default: where it "
                      "listens)");
  command->add_option("--model-cache", arguments->model_cache,
                      "the folder for layers that come from other servers (default: "
                      "~/.cache/atoll/models)");
  command->add_option("--upload-rate", arguments->upload_rate,
                      "how fast layers are sent to servers without files, such as 20mbit (default: "
                      "200mbit while texts are read here, else any)");
  add_kv_store_arguments(*command, arguments->kept);
  add_neighbour_arguments(*command, arguments->kept);
  command
      ->add_option("--memory-gib", arguments->memory_gib,
                   "memory that may be used, in GiB: how many layers fit, or whether all of the "
                   "model does (default: 0.9 of the machine's, or of its control group's)")
      ->check(real_number(0.001, 1 << 20));
  command
      ->add_option("--kv-gib", arguments->kv_gib,
                   "memory for keys and values, in GiB (default: a tenth of it, 2 at most)")
      ->check(real_number(0.001, 1 << 20));
  add_guesses_argument(*command, arguments->max_guesses);
  add_api_arguments(*command, arguments->api);
  command->footer(kFooter);
  command->callback([command, arguments] {
    // What is for the other way to serve is no silent wish.
    const auto others =
        arguments->gateway
            ? std::vector{"--blocks",      "--head",        "--advertise",      "--peer-name",
                          "--model-cache", "--upload-rate", "--neighbour-rate", "--kv-profile"}
            : std::vector{"--tokenizer",   "--strict",      "--template",    "--keys",
                          "--certificate", "--private-key", "--max-running", "--deterministic",
                          "--adapter",     "--max-guesses"};
    for (const char* option : others) {
      if (command->count(option) == 0) continue;
      throw UsageError(fmt::format("{} is for {}", option,
                                   arguments->gateway ? "--join" : "--gateway, or atoll gateway"));
    }
    for (const char* option : {"--kv-store-gib", "--kv-store-memory-gib"}) {
      if (!arguments->gateway || command->count(option) == 0 || command->count("--kv-store") > 0) {
        continue;
      }
      throw UsageError(
          fmt::format("{}: with --gateway texts are kept in --kv-store alone", option));
    }
    arguments->listens = command->count("--listen") > 0;
    arguments->swarm.insecure = arguments->api.service.insecure;
    serve_model(*arguments);
  });
}

}  // namespace atl::cli
