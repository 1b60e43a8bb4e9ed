#include "atoll/cli/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/progress.h"
#include "atoll/cli/plan_start.h"
#include "atoll/method/method.h"
#include "atoll/plan/plan_sharding.h"
#include "atoll/plan/plan_traffic.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::Interval;
using plan::PlanChoice;
using plan::PlannedMemory;
using plan::PlannedRun;
using plan::PlanRequest;
using plan::span_text;

std::vector<std::string> names_of(const PlanRequest& request, const PlanChoice& choice,
                                  bool taking_part) {
  std::vector<std::string> names;
  for (size_t i = 0; i < request.islands.size(); ++i) {
    const bool is_in = std::ranges::count(choice.setup.islands, i) > 0;
    if (is_in == taking_part) names.push_back(request.islands[i].name);
  }
  return names;
}

/// "streaming_diloco, e3m0, H 30, 5 fragments, tau 1".
std::string method_text(const PlanChoice& choice) {
  const method::SyncOptions& sync = choice.setup.sync;
  const method::Method& method = method::method_of(sync);
  std::string text = sync.method;
  if (choice.setup.islands.size() > 1) text += ", " + method::codec_name(sync);
  if (method.uses("sync_every")) text += fmt::format(", H {}", sync.sync_every);
  if (method.has_fragments()) {
    text += fmt::format(", {} fragments, tau {}", sync.num_fragments, sync.fragment_sync_delay);
  }
  return text;
}

std::string range_text(const Interval& interval) {
  return fmt::format("{:.3g} [{:.3g}, {:.3g}]", interval.value, interval.low, interval.high);
}

std::string model_text(const PlanRequest& request, const PlanChoice& choice,
                       const weights::ModelConfig& model) {
  const double papers = laws::papers_params(
      static_cast<double>(choice.shape.layers), static_cast<double>(choice.shape.hidden),
      4 * static_cast<double>(choice.shape.hidden), static_cast<double>(request.goal.vocab_size));
  return fmt::format(
      "model      {} parameters as the papers count, {} as Atoll does\n"
      "           {} layer{} of {}, {} head{}, ff {}, vocabulary {}\n",
      format_count(papers), format_count(choice.shape.atoll_params), choice.shape.layers,
      choice.shape.layers == 1 ? "" : "s", choice.shape.hidden, model.num_heads,
      model.num_heads == 1 ? "" : "s", model.intermediate_size, request.goal.vocab_size);
}

std::string training_text(const PlanRequest& request, const PlannedRun& run) {
  const PlanChoice& choice = run.choice;
  const double tokens = choice.tokens(request.goal);
  const int64_t rows = choice.batch_rows / std::ssize(choice.setup.islands);
  std::string text = fmt::format(
      "loss       {:.3f} [{:.3f}, {:.3f}] nats per token{}\n"
      "tokens     {}, {:.3g} for each parameter, in {} steps\n"
      "batch      {} rows of {} ({} tokens; the law says {} to {}), {} an island, {} at a time on "
      "a device\n"
      "rates      inner {}",
      run.loss.loss.value, run.loss.loss.low, run.loss.loss.high,
      run.loss.extrapolation.empty() ? "" : ", extrapolated", format_count(tokens),
      tokens / choice.shape.law_params, choice.steps, choice.batch_rows,
      request.goal.sequence_length, format_count(tokens / static_cast<double>(choice.steps)),
      format_count(choice.settings.batch_tokens.low),
      format_count(choice.settings.batch_tokens.high), rows, choice.micro_batch_rows,
      range_text(choice.settings.inner_lr));
  if (method::method_of(choice.setup.sync).uses("outer_lr")) {
    text += fmt::format(", outer {}", range_text(*choice.settings.outer_lr));
  }
  return text + "\n";
}

/// "8, zero1".
std::string processes_text(const plan::PlannedIsland& island, const std::string& shard) {
  return fmt::format("{}{}", island.devices, shard == "none" ? "" : ", " + shard);
}

std::string islands_text(const PlanRequest& request, const PlanChoice& choice) {
  std::string text =
      fmt::format("\n{:<16} {:>10} {:>9} {:>8} {:>10} {:>10} {:>21} {:>10}\n", "island",
                  "processes", "step", "waiting", "sent", "received", "memory of a device", "host");
  for (size_t place = 0; place < choice.loads.size(); ++place) {
    const plan::PlannedIsland& island = request.islands[choice.setup.islands[place]];
    const PlannedMemory& memory = choice.memory[place];
    text += fmt::format(
        "{:<16} {:>10} {:>9} {:>8} {:>10} {:>10} {:>21} {:>10}\n", island.name,
        processes_text(island, choice.shards[place]), span_text(choice.loads[place].step_s),
        fmt::format("{:.1f} %", 100 * (1 - choice.spent[place].utilisation())),
        format_bytes(choice.sent_bytes[place]), format_bytes(choice.sent_bytes[place]),
        fmt::format("{} of {}", format_bytes(memory.device), format_bytes(island.memory_bytes)),
        format_bytes(memory.host));
  }
  const PlannedMemory& memory = choice.memory.front();
  text += fmt::format(
      "memory: parameters {}, gradients {}, moments {}, outer copies {}, exchange {},\n"
      "        checkpoint {}, activations {} ({} row{} at a time)\n",
      format_bytes(memory.parameters), format_bytes(memory.gradients), format_bytes(memory.moments),
      format_bytes(memory.outer), format_bytes(memory.exchange), format_bytes(memory.checkpoint),
      format_bytes(memory.activations), choice.micro_batch_rows,
      choice.micro_batch_rows == 1 ? "" : "s");
  for (const std::string& line : start_lines(request, choice)) text += "start  " + line + "\n";
  return text;
}

std::string choices_text(const PlanRequest& request, const plan::Plan& plan) {
  std::string text = fmt::format("\n  {:>7} {:>9} {:>9} {:>8}  {:<46} {}\n", "loss", "time",
                                 "bytes", "params", "method", "islands");
  for (size_t i = 0; i < plan.choices.size(); ++i) {
    const PlanChoice& choice = plan.choices[i].choice;
    const auto others = names_of(request, choice, false);
    text += fmt::format(
        "{} {:>7.3f} {:>9} {:>9} {:>8}  {:<46} {}\n", i == plan.recommended ? "*" : " ",
        choice.loss, span_text(choice.wall_clock_s), format_bytes(choice.total_bytes()),
        format_count(choice.shape.law_params), method_text(choice),
        others.empty() ? std::string("all")
                       : fmt::format("{}", fmt::join(names_of(request, choice, true), ", ")));
  }
  return text;
}

Json range_json(const Interval& interval) { return {interval.low, interval.high}; }

Json memory_json(const PlannedMemory& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"moments", memory.moments},
          {"outer", memory.outer},
          {"exchange", memory.exchange},
          {"checkpoint", memory.checkpoint},
          {"activations", memory.activations},
          {"device", memory.device},
          {"host", memory.host}};
}

Json islands_json(const PlanRequest& request, const PlanChoice& choice) {
  Json list = Json::array();
  for (size_t place = 0; place < choice.loads.size(); ++place) {
    const plan::PlannedIsland& island = request.islands[choice.setup.islands[place]];
    list.push_back({{"name", island.name},
                    {"processes", island.devices},
                    {"shard", choice.shards[place]},
                    {"start", start_words(request, choice, place)},
                    {"step_s", choice.loads[place].step_s},
                    {"computing_s", choice.spent[place].computing_s},
                    {"waiting_s", choice.spent[place].waiting_s},
                    {"waiting_share", 1 - choice.spent[place].utilisation()},
                    {"bytes_sent", choice.sent_bytes[place]},
                    {"bytes_received", choice.sent_bytes[place]},
                    {"memory", memory_json(choice.memory[place])}});
  }
  return list;
}

Json run_json(const PlanRequest& request, const PlannedRun& run, bool is_recommended) {
  const PlanChoice& choice = run.choice;
  const method::SyncOptions& sync = choice.setup.sync;
  const method::Method& method = method::method_of(sync);
  const bool shares = choice.setup.islands.size() > 1;
  const double tokens = choice.tokens(request.goal);
  const plan::Shapes shapes(request.goal.vocab_size, true);
  const weights::ModelConfig model = shapes.config(choice.shape, request.goal.sequence_length);
  const auto when = [](bool has, Json value) { return has ? std::move(value) : Json(); };
  const bool has_outer = method.uses("outer_lr");
  return {{"recommended", is_recommended},
          {"loss", run.loss.loss.value},
          {"loss_range", range_json(run.loss.loss)},
          {"extrapolation", when(!run.loss.extrapolation.empty(), run.loss.extrapolation)},
          {"params", choice.shape.law_params},
          {"atoll_params", choice.shape.atoll_params},
          {"layers", model.num_layers},
          {"hidden", model.hidden_size},
          {"heads", model.num_heads},
          {"ff", model.intermediate_size},
          {"vocab", model.vocab_size},
          {"replicas", choice.setup.islands.size()},
          {"islands", names_of(request, choice, true)},
          {"left_out", names_of(request, choice, false)},
          {"precision", plan::planned_precision(request)},
          {"activation_checkpointing", request.train.activation_checkpointing},
          {"method", sync.method},
          {"codec", when(shares, method::codec_name(sync))},
          {"bits_per_value", when(shares, plan::bits_per_value(sync))},
          {"sync_every", when(has_outer, sync.sync_every)},
          {"num_fragments", when(method.has_fragments(), sync.num_fragments)},
          {"fragment_sync_delay", when(method.has_delay(), sync.fragment_sync_delay)},
          {"inner_lr", choice.settings.inner_lr.value},
          {"inner_lr_range", range_json(choice.settings.inner_lr)},
          {"outer_lr", when(has_outer, sync.outer_lr)},
          {"outer_lr_range", has_outer ? range_json(*choice.settings.outer_lr) : Json()},
          {"tokens", tokens},
          {"tokens_per_param", tokens / choice.shape.law_params},
          {"steps", choice.steps},
          {"sequence_length", request.goal.sequence_length},
          {"batch_tokens", tokens / static_cast<double>(choice.steps)},
          {"batch_tokens_range", range_json(choice.settings.batch_tokens)},
          {"batch_rows", choice.batch_rows},
          {"rows_per_island", choice.batch_rows / std::ssize(choice.setup.islands)},
          {"micro_batch_rows", choice.micro_batch_rows},
          {"wall_clock_s", choice.wall_clock_s},
          {"computing_s", choice.computing_s},
          {"utilisation", choice.utilisation},
          {"waiting_share", 1 - choice.utilisation},
          {"bytes_sent", choice.total_bytes()},
          {"bytes_received", choice.total_bytes()},
          {"per_island", islands_json(request, choice)}};
}

}  // namespace

std::string plan_text(const PlanRequest& request, const plan::Plan& plan) {
  const PlannedRun& best = plan.best();
  const PlanChoice& choice = best.choice;
  const plan::Shapes shapes(request.goal.vocab_size, true);
  const auto taking_part = names_of(request, choice, true);
  const auto left_out = names_of(request, choice, false);
  std::string text =
      model_text(request, choice, shapes.config(choice.shape, request.goal.sequence_length));
  text += fmt::format(
      "islands    {}{}\n", fmt::join(taking_part, ", "),
      left_out.empty() ? std::string() : fmt::format("; without {}", fmt::join(left_out, ", ")));
  text += fmt::format("method     {}\n", method_text(choice));
  text += fmt::format("precision  {}{}\n", plan::planned_precision(request),
                      request.train.activation_checkpointing ? ", activations computed again" : "");
  text += training_text(request, best);
  text += fmt::format("time       {}, of which {:.1f} % waiting\n", span_text(choice.wall_clock_s),
                      100 * (1 - choice.utilisation));
  text += fmt::format("bytes      {} sent in all, and as many received\n",
                      format_bytes(choice.total_bytes()));
  text += islands_text(request, choice);
  text += choices_text(request, plan);
  text += fmt::format("\n* {}\n", plan.why);
  for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

Json plan_json(const PlanRequest& request, const plan::Plan& plan, const std::string& config) {
  Json json = run_json(request, plan.best(), true);
  json["why"] = plan.why;
  json["notes"] = plan.notes;
  json["laws"] = request.laws.fit.empty() ? "published" : request.laws.fit;
  json["alternatives"] = Json::array();
  for (size_t i = 0; i < plan.choices.size(); ++i) {
    json["alternatives"].push_back(run_json(request, plan.choices[i], i == plan.recommended));
  }
  json["config"] = config;
  return json;
}

}  // namespace atl::cli
