#include "atoll/cli_torch/bench_command.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/base/settings.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/data/batches.h"
#include "atoll/method/train_options.h"
#include "atoll/model/device.h"
#include "atoll/model/model.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/learner.h"
#include "atoll/train/loss.h"

namespace atl::cli {
namespace {

struct BenchArguments {
  int64_t steps = 10;
  int64_t warmup = 3;
  bool json = false;
  weights::ModelConfig model{.vocab_size = 8192};
  method::TrainOptions train{.batch_rows = 8, .sequence_length = 256, .z_loss = 0};
};

constexpr const char* kFooter = R"(
Times whole training steps (forward, backward, clip, optimiser) of a random model on random tokens
in one process. Sizes are settings: --model.KEY=VALUE and --train.KEY=VALUE as for `atoll train`.

Example:
  atoll bench train-step --model.hidden_size=512 --model.num_layers=8 --train.threads=1 --json)";

/// Random ids, and as targets the ids that follow.
std::pair<at::Tensor, at::Tensor> random_rows(const BenchArguments& arguments, at::Device device) {
  const int64_t rows = arguments.train.batch_rows;
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
  return {inputs_BT.to(device), targets_BT.to(device)};
}

/// Of the device, or of the machine where that computes.
double memory_bytes(at::Device device) {
  if (!device.is_cpu()) {
    return static_cast<double>(
        at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second);
  }
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void bench_train_step(const BenchArguments& arguments) {
  const method::TrainOptions& options = arguments.train;
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  weights::ModelConfig config = arguments.model;
  config.max_positions = std::max(config.max_positions, options.sequence_length);
  const at::Device device = model::usable_device(options.device, "train.device");
  model::Model model(config, device, train::purpose_of(options));
  model.set_activation_checkpointing(options.activation_checkpointing);
  model.initialise(static_cast<uint64_t>(options.seed));
  const at::Tensor gradients_P = model.parameters().gradients_P();
  const auto optimizer = train::make_inner_optimizer(options, train::target_of(model.parameters()));
  const auto [inputs_BT, targets_BT] = random_rows(arguments, device);
  const SystemClock clock;
  std::vector<double> step_seconds;
  double loss = 0;
  for (int64_t step = 0; step < arguments.warmup + arguments.steps; ++step) {
    const Time begin = clock.now();
    model.parameters().narrow();
    loss = train::accumulate_gradients(model, inputs_BT, targets_BT, {.z_loss = options.z_loss})
               .total.item<double>();
    const double norm = train::gradient_norm(gradients_P);
    optimizer->step({.lr = options.lr,
                     .weight_decay = method::weight_decay(options),
                     .gradient_scale = train::clip_factor(norm, options.grad_clip)});
    if (step >= arguments.warmup) step_seconds.push_back(seconds(clock.now() - begin));
  }
  std::ranges::sort(step_seconds);
  const double median = step_seconds[step_seconds.size() / 2];
  const double tokens_per_s = static_cast<double>(inputs_BT.numel()) / median;
  if (arguments.json) {
    const nlohmann::ordered_json json{{"tokens_per_s", tokens_per_s},
                                      {"step_ms", median * 1e3},
                                      {"device", device.str()},
                                      {"threads", at::get_num_threads()},
                                      {"parameters", gradients_P.numel()},
                                      {"memory_bytes", memory_bytes(device)},
                                      {"loss", loss}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{:.0f} tokens/s, {:.1f} ms per step, {} threads, {} parameters\n", tokens_per_s,
               median * 1e3, at::get_num_threads(), gradients_P.numel());
  }
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure how fast this machine trains");
  command->require_subcommand(1);
  auto* step = command->add_subcommand("train-step", "Tokens per second of whole training steps");
  auto arguments = std::make_shared<BenchArguments>();
  step->add_option("--steps", arguments->steps, "steps that are timed (default: 10)")
      ->check(whole_number<int64_t>(1, 1'000'000));
  step->add_option("--warmup", arguments->warmup, "steps before them (default: 3)")
      ->check(whole_number<int64_t>(0, 1'000'000));
  step->add_flag("--json", arguments->json, "print one JSON object");
  step->allow_extras();
  step->footer(kFooter);
  step->callback([step, arguments] {
    SettingList settings;
    arguments->model.visit(settings);
    arguments->train.visit(settings);
    for (const std::string& word : overrides_from(step->remaining())) {
      settings.apply_override(word);
    }
    bench_train_step(*arguments);
  });
}

}  // namespace atl::cli
