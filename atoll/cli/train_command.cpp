#include "atoll/cli/train_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <thread>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/cli/command_line.h"
#include "atoll/model/hf_folder.h"
#include "atoll/run/launcher.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/prepare_data.h"
#include "atoll/run/run_folder.h"

namespace atl::cli {
namespace {

struct TrainArguments {
  std::string config_file;
  std::string run;
  std::string data;
  std::string init;
  std::string link_rate;
  int64_t islands = 0;  // 0: not given.
  bool json = false;
  bool dump_config = false;
  std::vector<std::string> overrides;
};

constexpr const char* kFooter = R"(
Any setting can be given as --section.key=value; --dump-config prints all of them.
A run directory that exists is resumed. Ctrl-C checkpoints and ends.

Examples:
  atoll train                                   a small model on the Python sources here
  atoll train --islands 2 --link-rate 20mbit    two islands and a coordinator, over the network
  atoll train run.toml --run runs/a --data ~/src --train.lr=2e-3)";

/// The order of precedence: settings of the run directory, config file, named options, overrides.
std::vector<std::string> all_overrides(const TrainArguments& arguments) {
  std::vector<std::string> overrides;
  if (arguments.islands > 0) {
    overrides.push_back(fmt::format("swarm.min_replicas={}", arguments.islands));
  }
  if (!arguments.data.empty()) overrides.push_back("data.path=" + arguments.data);
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  return overrides;
}

/// One replica has nobody to agree with: plain training unless a method was chosen.
void choose_method(run::RunConfig& config, const TrainArguments& arguments) {
  const bool chosen = !arguments.config_file.empty() ||
                      std::ranges::any_of(arguments.overrides, [](const std::string& word) {
                        return word.starts_with("sync.method=");
                      });
  if (config.swarm.min_replicas == 1 && !chosen) config.sync.method = "single";
}

/// The model's shape comes from --init; a shape that was asked for besides must be the same.
void take_shape(run::RunConfig& config, const std::filesystem::path& init) {
  run::RunConfig loaded = config;
  loaded.model = model::load_hf_config(init).config;
  run::RunConfig defaults;
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

void launch_islands(const TrainRequest& request, const std::string& link_rate) {
  const SystemClock clock;
  run::RunConfig config = request.config;
  if (config.train.threads == 0) {
    config.train.threads =
        std::max<int64_t>(1, std::thread::hardware_concurrency() / config.swarm.min_replicas);
  }
  watch_interrupts();
  const auto islands = run::launch({.program = sibling_program("atoll"),
                                    .folder = request.folder,
                                    .config = config,
                                    .link_rate = link_rate,
                                    .init = request.init},
                                   clock);
  if (request.json) {
    fmt::print("{}\n", run::to_json(run::combine(islands, request.folder)));
  } else {
    if (islands.front().stopped) {
      fmt::print("stopped at step {}; resume: atoll train --islands {} --run {}\n",
                 islands.front().steps, islands.size(), request.folder.string());
    }
    fmt::print("{}", run::result_table(config, islands));
  }
}

void train(const TrainArguments& arguments, char** argv,
           const std::function<void(const TrainRequest&)>& train_here) {
  if (arguments.dump_config) {
    run::RunConfig config = run::load_config(arguments.config_file, all_overrides(arguments));
    choose_method(config, arguments);
    fmt::print("{}", config.settings().dump(/*with_help=*/true));
    return;
  }
  if (!arguments.link_rate.empty()) run::parse_link_rate(arguments.link_rate);
  TrainRequest request{.folder = arguments.run.empty() ? run::default_run_folder()
                                                       : std::filesystem::path(arguments.run),
                       .init = arguments.init,
                       .json = arguments.json};
  if (!std::filesystem::exists(request.folder / "config.toml")) {
    // Everything that can be wrong is found before anything is written or started.
    run::RunConfig first = run::load_config(arguments.config_file, all_overrides(arguments));
    choose_method(first, arguments);
    run::check(first);
  }
  auto folder = std::make_unique<run::RunFolder>(request.folder);
  request.config = folder->configure(arguments.config_file, all_overrides(arguments));
  if (!folder->was_started()) choose_method(request.config, arguments);
  run::check(request.config);
  if (request.config.swarm.min_replicas == 1) {
    if (!arguments.link_rate.empty()) {
      throw UsageError(
          "--link-rate holds islands' links, and one island has none; add --islands 2");
    }
    if (!train_here) {
      folder.reset();  // The other program takes the lock.
      become_torch_program(argv, arguments.run.empty()
                                     ? std::vector{std::string("--run"), request.folder.string()}
                                     : std::vector<std::string>{});
    }
  }
  const SystemClock clock;
  std::filesystem::path tokenizer;
  if (!request.init.empty()) {
    const auto model = model::resolve_model(request.init);
    tokenizer = model / "tokenizer.json";
    take_shape(request.config, model);
    run::check(request.config);
    folder->require_same(request.config);
  }
  request.config.data.path =
      run::prepare_store(request.config.data, request.folder, tokenizer, clock).string();
  folder->save(request.config);
  if (request.config.swarm.min_replicas > 1) {
    launch_islands(request, arguments.link_rate);
  } else {
    train_here(request);
  }
}

}  // namespace

void add_train_command(CLI::App& app, char** argv,
                       std::function<void(const TrainRequest&)> train_here) {
  auto* command =
      app.add_subcommand("train", "Train a model: one island, or several over the network");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("config", arguments->config_file, "settings (TOML)")
      ->check(CLI::ExistingFile);
  command->add_option("--run", arguments->run, "run directory (default: runs/<date>-<time>)");
  command->add_option("--data", arguments->data,
                      "token store, or folder, text or jsonl file (default: Python's sources)");
  command->add_option("--init", arguments->init, "start from this Hugging Face model or run");
  command->add_option("--islands", arguments->islands, "islands to start on this machine")
      ->check(CLI::Range(1, 1024));
  command->add_option("--link-rate", arguments->link_rate,
                      "hold each island's sending side to this rate, e.g. 20mbit");
  command->add_flag("--json", arguments->json, "print the result as one JSON object");
  command->add_flag("--dump-config", arguments->dump_config, "print all settings and end");
  command->allow_extras();
  command->footer(kFooter);
  command->callback([command, arguments, argv, train_here = std::move(train_here)] {
    arguments->overrides = overrides_from(command->remaining());
    train(*arguments, argv, train_here);
  });
}

}  // namespace atl::cli
