#include "atoll/cli/train_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/machine_memory.h"
#include "atoll/base/number.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/mixture.h"
#include "atoll/identity/invite.h"
#include "atoll/method/method.h"
#include "atoll/net/address.h"
#include "atoll/plan/training_memory.h"
#include "atoll/run/follower_processes.h"
#include "atoll/run/launcher.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/prepare_data.h"
#include "atoll/run/result_table.h"
#include "atoll/run/run_folder.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {
namespace {

struct TrainArguments {
  std::string config_file;
  std::string run;
  std::string data;
  run::InitialModel init;
  FrozenArguments frozen;
  std::string link_rate;
  int64_t islands = 0;    // 0: not given.
  int64_t processes = 0;  // Of an island; 0: not given.
  bool together = false;
  bool json = false;
  bool dump_config = false;
  std::vector<std::string> overrides;
};

constexpr const char* kFooter = R"(
Any setting can be given as --section.key=value; --dump-config prints all of them.
A run directory that exists is resumed. Ctrl-C checkpoints and ends.

With --frozen MODEL --adapter lora the model stays as it is, and a small adapter is trained beside
it (docs/finetuning.md), also through the servers of a swarm (--servers); checkpoints are folders
that PEFT loads.

Examples:
  atoll train                                   a small model on the Python sources here
  atoll train --islands 2 --link-rate 20mbit    two islands and a coordinator, over the network
  atoll train --processes-per-island 2          one island of two processes (docs/processes.md)
  atoll train run.toml --run runs/a --data ~/src --train.lr=2e-3
  atoll train --frozen my-model --adapter lora --data texts.jsonl --adapter.rank=8)";

/// The order of precedence: settings of the run directory, config file, named options, overrides.
std::vector<std::string> all_overrides(const TrainArguments& arguments) {
  std::vector<std::string> overrides;
  if (arguments.islands > 0) {
    const bool says_both = std::ranges::any_of(arguments.overrides, [](const std::string& other) {
      return other.starts_with("swarm.replicas=");
    });
    if (says_both)
      throw UsageError("--islands and --swarm.replicas are the same; give one of them");
    overrides.push_back(fmt::format("swarm.replicas={}", arguments.islands));
  }
  if (!arguments.data.empty()) overrides.push_back("data.path=" + arguments.data);
  add_frozen_overrides(arguments.frozen, overrides);
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  return overrides;
}

/// The model's shape comes from --init or --frozen; a shape that was asked for besides must be the
/// same. How experts are balanced is no shape.
void take_shape(run::RunConfig& config, const std::filesystem::path& init,
                const std::vector<std::string>& overrides) {
  run::RunConfig loaded = config;
  loaded.model = weights::load_hf_config(init).config;
  run::RunConfig defaults;
  const bool is_given = std::ranges::any_of(
      overrides, [](const std::string& one) { return one.starts_with("model.router_aux_loss="); });
  if (is_given || config.model.router_aux_loss != defaults.model.router_aux_loss) {
    loaded.model.router_aux_loss = config.model.router_aux_loss;
  }
  const auto asked = config.settings().shared();
  const auto usual = defaults.settings().shared();
  for (const auto& [name, value] : loaded.settings().shared()) {
    if (asked.at(name) != value && asked.at(name) != usual.at(name)) {
      throw UsageError(fmt::format("{} = {} is asked for, and the model '{}' has {}; leave it out",
                                   name, asked.at(name), init.string(), value));
    }
  }
  config.model = loaded.model;
}

/// An island by itself looks when it begins; of several none knows that others are here.
void require_memory_for_all(const run::RunConfig& config, int64_t processes) {
  if (config.adapter.is_on() || config.train.device != "cpu") return;
  weights::ModelConfig model = config.model;
  if (model.vocab_size == 0) model.vocab_size = data::Mixture::open(config.data.path).vocab_size();
  const int64_t num_islands = config.swarm.num_replicas();
  plan::TrainingFit fit =
      plan::fit_of_leader(model, config.train, config.sync, num_islands, processes);
  fit.memory_bytes = usable_memory_bytes();
  fit.local_processes = processes;
  fit.local_islands = num_islands;
  plan::require_memory(fit);
}

void launch_islands(const TrainRequest& request, const std::string& link_rate, bool together,
                    int64_t processes) {
  const SystemClock clock;
  run::RunConfig config = request.config;
  if (config.train.threads == 0) {
    config.train.threads = std::max<int64_t>(
        1, std::thread::hardware_concurrency() / (config.swarm.num_replicas() * processes));
  }
  if (method::period(config.sync) > config.train.steps) {
    fmt::print(stderr,
               "atoll: warning: sync.sync_every = {} is over train.steps = {}: the islands agree "
               "once, after the last step\n",
               config.sync.sync_every, config.train.steps);
  }
  require_memory_for_all(config, processes);
  watch_interrupts();
  const auto islands = run::launch({.program = sibling_program("atoll"),
                                    .folder = request.folder,
                                    .config = config,
                                    .link_rate = link_rate,
                                    .init = request.init,
                                    .processes = processes,
                                    .together = together},
                                   clock);
  if (request.json) {
    fmt::print("{}\n", run::to_json(run::combine(islands, request.folder)));
  } else {
    if (islands.front().stopped) {
      fmt::print("stopped at step {}; resume: {}\n", islands.front().steps,
                 run::resume_command(request.folder, std::ssize(islands), link_rate));
    }
    fmt::print("{}", run::result_table(config, islands));
  }
}

/// Of the model that the run begins with, or that stays as it is; empty: there is none.
std::filesystem::path model_folder(const run::InitialModel& init, const run::RunConfig& config) {
  if (config.adapter.is_on()) return weights::resolve_model(config.adapter.base);
  return init.given() ? init.folder() : std::filesystem::path();
}

/// The settings of the run, complete but for the data. Writes nothing: everything that can be wrong
/// is found before anything is created or started.
run::RunConfig checked_config(const TrainArguments& arguments) {
  run::RunConfig config =
      run::configure(arguments.run, arguments.config_file, all_overrides(arguments));
  run::require_base(config.adapter);
  if (const auto model = model_folder(arguments.init, config); !model.empty()) {
    take_shape(config, model, arguments.overrides);
  }
  run::check(config);
  run::check_used(config, all_overrides(arguments));
  if (arguments.init.given() && config.adapter.is_on()) {
    run::first_adapter(arguments.init.path, run::adapter_config(config.adapter, config.model),
                       config.model);
  }
  if (arguments.init.given()) run::require_same(arguments.run, config);
  if (!arguments.link_rate.empty()) {
    run::parse_link_rate(arguments.link_rate);
    if (config.swarm.num_replicas() == 1) {
      throw UsageError(
          "--link-rate holds islands' links, and one island has none; add --islands 2");
    }
  }
  if (arguments.together && config.swarm.num_replicas() == 1) {
    throw UsageError("--together is about several islands; add --islands 2, or leave it out");
  }
  return config;
}

/// Where this process is one of an island's; else nothing, or, if it is to start the others, once
/// they are there.
std::optional<AskedOfProcess> asked_of_process(const TrainArguments& arguments) {
  const auto place = run::process_place(run::process_environment(), arguments.processes);
  if (!place) return std::nullopt;
  AskedOfProcess asked{
      .place = *place, .config_file = arguments.config_file, .overrides = all_overrides(arguments)};
  const auto config = run::load_config(asked.config_file, asked.overrides);
  asked.timeout_s = config.train.process_timeout;
  return asked;
}

/// Process 0 of an island, or the only one, as `alone`.
void check_processes(const TrainArguments& arguments, bool alone, bool is_one_of_several) {
  if (!alone && is_one_of_several) {
    throw UsageError(
        "several islands on this machine are started by one process, and this is one of several; "
        "let each island join by itself (atoll join), or start them with --processes-per-island");
  }
  if (alone && arguments.processes > 1 && !is_one_of_several) {
    throw UsageError("--processes-per-island: start `atoll`, not `atoll-torch`");
  }
}

/// On one machine each island would count its devices from the first.
void check_devices(const TrainArguments& arguments, const run::RunConfig& config) {
  if (arguments.processes < 2 || config.swarm.num_replicas() == 1) return;
  if (config.train.device != "cuda") return;
  throw UsageError(fmt::format(
      "train.device = 'cuda' with {} islands of {} processes: all islands would take the "
      "same devices; start each with its own (CUDA_VISIBLE_DEVICES=0,1 atoll join ...)",
      config.swarm.num_replicas(), arguments.processes));
}

/// What is wrong whatever models are in process 0's folders: nobody waits for who has ended by it.
void check_follower(const TrainArguments& arguments) {
  const auto config =
      run::configure(arguments.run, arguments.config_file, all_overrides(arguments));
  check_processes(arguments, config.swarm.num_replicas() == 1, /*is_one_of_several=*/true);
  if (arguments.init.given() || config.adapter.is_on()) return;
  run::check(config);
  run::check_used(config, all_overrides(arguments));
}

/// 0: none are asked for, or a wrong number.
int64_t processes_in(char** argv) {
  constexpr std::string_view kName = "--processes-per-island";
  for (char** word = argv; *word != nullptr; ++word) {
    const std::string_view text = *word;
    if (!text.starts_with(kName)) continue;
    const std::string_view rest = text.substr(kName.size());
    const char* const next = word[1] != nullptr ? word[1] : "";
    const auto number = number_in<int64_t>(rest.empty() ? next : rest.substr(1));
    return number && *number >= 1 && *number <= run::kMostProcesses ? *number : 0;
  }
  return 0;
}

void train(const TrainArguments& arguments, char** argv, const TrainHere& here) {
  if (arguments.dump_config) {
    run::RunConfig config = run::load_config(arguments.config_file, all_overrides(arguments));
    fmt::print("{}", config.settings().dump(/*with_help=*/true));
    return;
  }
  const auto asked = asked_of_process(arguments);
  if (asked && !asked->place.leads()) {
    check_follower(arguments);
    if (!here.follow) become_torch_program(argv);
    return here.follow(*asked);
  }
  TrainRequest request{
      .init = arguments.init, .config = checked_config(arguments), .json = arguments.json};
  const bool alone = request.config.swarm.num_replicas() == 1;
  if (alone && !here.train) {
    if (arguments.processes > 1 && !asked) {
      run::start_followers(sibling_program("atoll"), argv, arguments.processes);
    }
    become_torch_program(argv);
  }
  check_processes(arguments, alone, asked.has_value());
  check_devices(arguments, request.config);
  const int64_t processes = asked ? asked->place.size : std::max<int64_t>(1, arguments.processes);
  if (processes == 1 && request.config.train.shard != "none") {
    fmt::print(stderr,
               "atoll: warning: train.shard = {}: an island of one process has all itself\n",
               request.config.train.shard);
  }
  if (asked) here.meet(*asked);
  std::string& servers = request.config.adapter.servers;
  servers = servers_said(servers);
  if (!alone && identity::is_invite_word(servers)) {
    throw UsageError(
        "--servers: an invite is for one island; have each one join (atoll join ... --servers "
        "INVITE)");
  }
  const run::RunFolder folder(arguments.run);
  request.folder = folder.path();
  const SystemClock clock;
  const auto tokenizer = model_folder(request.init, request.config);
  request.config.data.path =
      run::prepare_store(request.config, request.folder, tokenizer, clock).string();
  folder.save(request.config);
  if (alone) {
    here.train(request);
  } else {
    launch_islands(request, arguments.link_rate, arguments.together, processes);
  }
}

}  // namespace

void add_init_options(CLI::App& command, run::InitialModel& init) {
  CLI::Option* model = command.add_option("--init", init.path,
                                          "start from this Hugging Face folder, GGUF file or run; "
                                          "with --frozen from this adapter (a run's or PEFT's)");
  command
      .add_flag("--strict", init.is_strict,
                "refuse weights of --init that are not finite (default: a warning)")
      ->needs(model);
}

void add_frozen_options(CLI::App& command, FrozenArguments& frozen) {
  command.add_option("--frozen", frozen.base,
                     "train an adapter of this model, which stays as it is: a Hugging Face folder, "
                     "GGUF file or run");
  command.add_option("--servers", frozen.servers,
                     "its layers are with the servers of a swarm (`atoll serve --join`): HOST:PORT "
                     "of their coordinator, or an invite for a gateway");
}

std::string servers_said(const std::string& argument) {
  std::string servers = invite_said("--servers", argument);
  if (!servers.empty() && !identity::is_invite_word(servers)) {
    net::require_address("--servers", servers);
  }
  return servers;
}

void add_frozen_overrides(const FrozenArguments& frozen, std::vector<std::string>& overrides) {
  if (!frozen.base.empty()) overrides.push_back("adapter.base=" + frozen.base);
  if (!frozen.kind.empty()) overrides.push_back("adapter.kind=" + frozen.kind);
  if (!frozen.servers.empty()) overrides.push_back("adapter.servers=" + frozen.servers);
}

void add_processes_option(CLI::App& command, int64_t& processes) {
  command
      .add_option("--processes-per-island", processes,
                  "processes that one island is, on this machine; 1: whatever torchrun or srun "
                  "say, this process is an island on its own")
      ->check(whole_number<int>(1, run::kMostProcesses));
}

void start_other_processes(char** argv) {
  const int64_t processes = processes_in(argv);
  if (processes < 2 || run::process_place(run::process_environment(), 0)) return;
  run::start_followers(sibling_program("atoll"), argv, processes);
}

void add_train_command(CLI::App& app, char** argv, TrainHere here) {
  auto* command =
      app.add_subcommand("train", "Train a model: one island, or several over the network");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("config", arguments->config_file, "settings (TOML)")
      ->check(CLI::ExistingFile);
  command->add_option("--run", arguments->run, "run directory (default: runs/<date>-<time>)")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return name.empty() ? std::string("the name of a folder is missing") : std::string();
          },
          ""));
  command->add_option("--data", arguments->data,
                      "token store, or folder, text or jsonl file (default: Python's sources)");
  add_init_options(*command, arguments->init);
  add_frozen_options(*command, arguments->frozen);
  command
      ->add_option("--adapter", arguments->frozen.kind,
                   "what is trained with --frozen: lora, or prompt (rows before each text)")
      ->check(CLI::IsMember({"lora", "prompt"}));
  command->add_option("--islands", arguments->islands, "islands to start on this machine")
      ->check(whole_number<int>(1, 1024));
  add_processes_option(*command, arguments->processes);
  command->add_option("--link-rate", arguments->link_rate,
                      "hold each island's sending side to this rate, e.g. 20mbit");
  command->add_flag("--together", arguments->together,
                    "a lost island ends the run with an error (default: the others go on)");
  command->add_flag("--json", arguments->json, "print the result as one JSON object");
  command->add_flag("--dump-config", arguments->dump_config, "print all settings and end");
  command->allow_extras();
  command->footer(kFooter);
  command->callback([command, arguments, argv, here = std::move(here)] {
    arguments->overrides = overrides_from(command->remaining());
    train(*arguments, argv, here);
  });
}

}  // namespace atl::cli
