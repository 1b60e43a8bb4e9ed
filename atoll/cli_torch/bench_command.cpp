#include "atoll/cli_torch/bench_command.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/progress.h"
#include "atoll/base/random.h"
#include "atoll/base/settings.h"
#include "atoll/cli/bench_settings.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/cli_torch/bench_device.h"
#include "atoll/cli_torch/bench_peak.h"
#include "atoll/data/batches.h"
#include "atoll/method/train_options.h"
#include "atoll/model/model.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/learner.h"

namespace atl::cli {
namespace {

struct BenchArguments {
  int64_t steps = 10;
  int64_t warmup = 3;
  bool json = false;
  bool in_turns = false;
  weights::ModelConfig model{.vocab_size = 8192};
  method::TrainOptions train{.batch_rows = 8, .sequence_length = 256, .z_loss = 0};
};

constexpr const char* kFooter = R"(
Times whole training steps (forward, backward, clip, optimiser) of a random model on random tokens
in one process. Sizes are settings: --model.KEY=VALUE and --train.KEY=VALUE as for `atoll train`;
those that change nothing here are refused.
With --in-turns each step waits for a line on the standard input and prints one, so that another
program can take turns with it; the last line is the summary.

Example:
  atoll bench train-step --model.hidden_size=512 --model.num_layers=8 --train.threads=1 --json)";

/// Random ids, and as targets the ids that follow, in micro-batches.
std::vector<train::Batch> random_rows(const BenchArguments& arguments) {
  const int64_t rows = arguments.train.batch_rows;
  const int64_t micro =
      arguments.train.micro_batch_rows > 0 ? arguments.train.micro_batch_rows : rows;
  if (rows % micro != 0) {
    throw UsageError(
        fmt::format("train.micro_batch_rows = {} must divide train.batch_rows = {}", micro, rows));
  }
  const int64_t length = arguments.train.sequence_length;
  const auto options = at::TensorOptions().dtype(at::kLong);
  const at::Tensor inputs_BT = at::empty({rows, length}, options);
  const at::Tensor targets_BT = at::empty({rows, length}, options);
  int64_t* inputs = inputs_BT.mutable_data_ptr<int64_t>();
  int64_t* targets = targets_BT.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows * length; ++i) {
    inputs[i] = static_cast<int64_t>(random_bits(1, 0, static_cast<uint64_t>(i)) %
                                     static_cast<uint64_t>(arguments.model.vocab_size));
  }
  for (int64_t i = 0; i < rows * length; ++i) {
    targets[i] = (i + 1) % length == 0 ? data::kIgnoredTarget : inputs[i + 1];
  }
  std::vector<train::Batch> batches;
  for (int64_t begin = 0; begin < rows; begin += micro) {
    batches.push_back({inputs_BT.narrow(0, begin, micro), targets_BT.narrow(0, begin, micro)});
  }
  return batches;
}

class TrainStep {
 public:
  explicit TrainStep(const BenchArguments& arguments)
      : options_(arguments.train),
        device_(numbered_device(options_.device, "train.device")),
        batches_(random_rows(arguments)),
        model_(checked(arguments.model, options_, device_), device_, train::purpose_of(options_)),
        learner_(model_, {.z_loss = options_.z_loss}),
        optimizer_(train::make_inner_optimizer(options_, train::target_of(model_.parameters()))) {
    model_.set_activation_checkpointing(options_.activation_checkpointing);
    model_.initialise(static_cast<uint64_t>(options_.seed));
  }

  /// The seconds that it took.
  double run() {
    const Time begin = clock_.now();
    loss_ = learner_.add_gradients(batches_, 1);
    const double norm = train::gradient_norm(model_.parameters().gradients_P());
    optimizer_->step({.lr = options_.lr,
                      .weight_decay = method::weight_decay(options_),
                      .gradient_scale = train::clip_factor(norm, options_.grad_clip)});
    finish_work(device_);
    return seconds(clock_.now() - begin);
  }

  double loss() const { return loss_; }
  /// Of all steps that count, by their seconds.
  nlohmann::ordered_json summary(std::vector<double> step_seconds) const {
    std::ranges::sort(step_seconds);
    const double median = step_seconds.empty() ? 0 : step_seconds[step_seconds.size() / 2];
    const auto tokens = static_cast<double>(options_.batch_rows * options_.sequence_length);
    return {{"tokens_per_s", median > 0 ? tokens / median : 0},
            {"step_ms", median * 1e3},
            {"device", device_.str()},
            {"threads", at::get_num_threads()},
            {"precision", options_.precision},
            {"parameters", model_.parameters().values_P().numel()},
            {"memory_bytes", memory_bytes(device_)},
            {"peak_memory_bytes", peak_memory_bytes(device_)},
            {"loss", loss_}};
  }

 private:
  static weights::ModelConfig checked(weights::ModelConfig config,
                                      const method::TrainOptions& options, at::Device device) {
    config.max_positions = std::max(config.max_positions, options.sequence_length);
    weights::check(config);
    const int num_moments = options.optimizer == "sgd" ? 0 : 2;
    require_room(static_cast<double>(weights::num_parameters(config)), num_moments, device);
    return config;
  }

  const method::TrainOptions options_;
  const SystemClock clock_;
  at::Device device_;
  const std::vector<train::Batch> batches_;
  model::Model model_;
  train::ModelLearner learner_;
  std::unique_ptr<train::InnerOptimizer> optimizer_;
  double loss_ = 0;
};

/// Each step when the other side says so.
std::vector<double> steps_in_turns(TrainStep& step) {
  std::vector<double> step_seconds;
  for (std::string line; std::getline(std::cin, line);) {
    step_seconds.push_back(step.run());
    const nlohmann::ordered_json said{{"step_ms", step_seconds.back() * 1e3},
                                      {"loss", step.loss()}};
    fmt::print("{}\n", said.dump());
    std::fflush(stdout);
  }
  return step_seconds;
}

void bench_train_step(const BenchArguments& arguments) {
  if (arguments.train.threads > 0) {
    at::set_num_threads(static_cast<int>(arguments.train.threads));
  }
  TrainStep step(arguments);
  std::vector<double> step_seconds;
  for (int64_t i = 0; i < arguments.warmup; ++i) step.run();
  if (arguments.in_turns) {
    step_seconds = steps_in_turns(step);
  } else {
    for (int64_t i = 0; i < arguments.steps; ++i) step_seconds.push_back(step.run());
  }
  const nlohmann::ordered_json summary = step.summary(std::move(step_seconds));
  if (arguments.json || arguments.in_turns) {
    fmt::print("{}\n", summary.dump());
  } else {
    fmt::print("{:.0f} tokens/s, {:.1f} ms per step, {} threads, {} parameters, {} at most\n",
               summary["tokens_per_s"].get<double>(), summary["step_ms"].get<double>(),
               at::get_num_threads(), summary["parameters"].get<int64_t>(),
               format_bytes(summary["peak_memory_bytes"].get<double>()));
  }
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("bench", "Measure this machine: products, training, memory, network");
  command->require_subcommand(1);
  add_bench_peak(*command);
  auto* step = command->add_subcommand("train-step", "Tokens per second of whole training steps");
  auto arguments = std::make_shared<BenchArguments>();
  CLI::Option* steps =
      step->add_option("--steps", arguments->steps, "steps that are timed (default: 10)");
  steps->check(whole_number<int64_t>(1, 1'000'000));
  step->add_option("--warmup", arguments->warmup, "steps before them (default: 3)")
      ->check(whole_number<int64_t>(0, 1'000'000));
  step->add_flag("--json", arguments->json, "print one JSON object");
  step->add_flag("--in-turns", arguments->in_turns,
                 "a step for each line of the standard input; prints a JSON object for each")
      ->excludes(steps);
  step->allow_extras();
  step->footer(kFooter);
  step->callback([step, arguments] {
    SettingList settings;
    arguments->model.visit(settings);
    arguments->train.visit(settings);
    for (const std::string& word : overrides_from(step->remaining())) {
      settings.apply_override(word);
      const std::string name = word.substr(0, word.find('='));
      if (!is_measured(name)) {
        throw UsageError(fmt::format(
            "{} changes nothing that `atoll bench train-step` measures; leave it out", name));
      }
    }
    bench_train_step(*arguments);
  });
}

}  // namespace atl::cli
