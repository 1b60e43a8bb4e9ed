#include "atoll/cli/plan_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "atoll/base/progress.h"
#include "atoll/cli/plan_start.h"
#include "atoll/method/method.h"
#include "atoll/plan/plan_sharding.h"

namespace atl::cli {
namespace {

using plan::PlanChoice;

/// How Scaling Laws for DiLoCo trained (section 3): its laws hold for such runs.
void train_as_the_paper(method::TrainOptions& train) {
  constexpr int64_t kWarmup = 1000;
  train.beta2 = 0.99;
  train.min_lr_ratio = 0.05;
  train.weight_decay_mode = "inverse_steps";
  if (train.steps >= 20 * kWarmup) train.warmup_steps = kWarmup;
}

/// About every hour, where all islands can be found together.
int64_t checkpoint_every(const PlanChoice& choice) {
  const double step_s = choice.wall_clock_s / static_cast<double>(choice.steps);
  const int64_t period = method::period(choice.setup.sync);
  const auto periods =
      std::max<int64_t>(2, std::llround(3600 / (step_s * static_cast<double>(period))));
  const int64_t every = period * periods;
  return every < choice.steps ? every : 0;
}

double rounded(double value) { return std::stod(fmt::format("{:.3g}", value)); }

run::RunConfig config_of(const plan::PlanRequest& request, const PlanChoice& choice) {
  run::RunConfig config;
  config.data.vocab_size = request.goal.vocab_size;
  const plan::Shapes shapes(request.goal.vocab_size, true);
  config.model = shapes.config(choice.shape, request.goal.sequence_length);
  config.train.steps = choice.steps;
  config.train.batch_rows = choice.batch_rows;
  config.train.micro_batch_rows = choice.micro_batch_rows;
  config.train.sequence_length = request.goal.sequence_length;
  config.train.lr = rounded(choice.settings.inner_lr.value);
  if (request.laws.fit.empty()) train_as_the_paper(config.train);
  config.train.checkpoint_every = checkpoint_every(choice);
  config.train.precision = plan::planned_precision(request);
  config.train.activation_checkpointing = request.train.activation_checkpointing;
  config.train.shard = shared_shard(request, choice);
  config.sync.method = choice.setup.sync.method;
  const method::Method& method = method::method_of(config.sync);
  if (!method.is_for_one) config.sync.codec = choice.setup.sync.codec;
  if (method.uses("sync_every")) config.sync.sync_every = choice.setup.sync.sync_every;
  if (method.uses("outer_lr")) config.sync.outer_lr = rounded(choice.setup.sync.outer_lr);
  if (method.has_fragments()) {
    config.sync.num_fragments = choice.setup.sync.num_fragments;
    config.sync.fragment_sync_delay = choice.setup.sync.fragment_sync_delay;
  }
  config.swarm.replicas = std::ssize(choice.setup.islands);
  return config;
}

/// The settings whose values are not the defaults'.
std::string changed_text(run::RunConfig& config) {
  std::string text;
  std::string section;
  for (const Setting& setting : run::changed_settings(config)) {
    if (setting.section != section) {
      section = setting.section;
      text += fmt::format("\n[{}]\n", section);
    }
    text += fmt::format("{} = {}\n", setting.key, setting.text());
  }
  return text;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c < ' ' && c >= 0; }, ' ');
  return text;
}

}  // namespace

std::string planned_config(const plan::PlanRequest& request, const plan::Plan& plan) {
  const plan::PlannedRun& best = plan.best();
  run::RunConfig config = config_of(request, best.choice);
  std::string islands;
  for (const size_t i : best.choice.setup.islands) {
    islands += (islands.empty() ? "" : ", ") + request.islands[i].name;
  }
  const std::vector<std::string> lines = start_lines(request, best.choice);
  std::string text = fmt::format(
      "# Written by `atoll plan`: {} parameters on {}.\n# Predicted: loss {:.3f} in {}, of which "
      "{:.1f} % waiting.\n# Give your text or token store with --data{}\n",
      format_count(best.choice.shape.law_params), one_line(islands), best.loss.loss.value,
      plan::span_text(best.choice.wall_clock_s), 100 * (1 - best.choice.utilisation),
      lines.empty() ? "." : ", and each island its own words:");
  for (const std::string& line : lines) text += fmt::format("#   {}\n", one_line(line));
  text += changed_text(config);
  config.settings().check("the planned configuration");
  run::check(config);
  return text;
}

}  // namespace atl::cli
