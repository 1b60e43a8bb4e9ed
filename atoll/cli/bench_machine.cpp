#include "atoll/cli/bench_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/progress.h"
#include "atoll/cli/bench_network.h"
#include "atoll/cli/torch_answer.h"
#include "atoll/plan/step_work.h"
#include "atoll/plan/training_memory.h"
#include "atoll/run/config.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// As the system has it; empty where it does not say, or where it has several kinds of cards and
/// nobody knows which is meant.
std::string name_of_device(const std::string& device) {
  if (device == "cpu") return plan::value_of_key(text_of("/proc/cpuinfo"), "model name");
  if (!device.starts_with("cuda")) return "";
  std::set<std::string> names;
  std::error_code none;
  for (const auto& card : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    names.insert(plan::value_of_key(text_of(card.path() / "information"), "Model"));
  }
  return names.size() == 1 ? *names.begin() : "";
}

/// The types that this program trains in.
std::vector<std::string> precisions() {
  run::RunConfig config;
  const SettingList settings = config.settings();
  const auto found = std::ranges::find_if(settings.settings(), [](const Setting& setting) {
    return setting.name() == "train.precision";
  });
  if (found == settings.settings().end()) return {"fp32"};
  return found->choices;
}

/// What a training step is asked for, beyond what it has by default.
std::vector<std::string> step_words(const BenchSize& size, const std::string& precision,
                                    const BenchOptions& options) {
  run::RunConfig config;
  config.model = size.model;
  std::vector<std::string> words = {"bench", "train-step", "--json"};
  for (const Setting& setting : run::changed_settings(config)) {
    words.push_back("--" + setting.assignment());
  }
  words.push_back(fmt::format("--train.batch_rows={}", size.rows));
  words.push_back(fmt::format("--train.sequence_length={}", size.sequence_length));
  words.push_back(fmt::format("--train.threads={}", options.threads));
  words.push_back("--train.device=" + options.device);
  if (precision != "fp32") words.push_back("--train.precision=" + precision);
  words.push_back(options.quick ? "--steps=3" : "--steps=7");
  words.push_back(options.quick ? "--warmup=1" : "--warmup=2");
  return words;
}

class MachineBench {
 public:
  MachineBench(const BenchOptions& options, const Clock& clock)
      : options_(options),
        precisions_(precisions()),
        num_parts_(2 + static_cast<double>(options.sizes.size() * precisions_.size())),
        bar_("measuring this machine", num_parts_, clock),
        clock_(clock) {}

  plan::MachineReport run() {
    plan::MachineReport report;
    report.peak = peak();
    report.name = name_of_device(report.peak.device);
    begin("network");
    const auto time = std::chrono::milliseconds(options_.quick ? 200 : 1000);
    report.loopback = measure_loopback(time, clock_);
    for (const BenchSize& size : options_.sizes) {
      for (const std::string& precision : precisions_) {
        report.steps.push_back(step(size, precision, report.peak));
      }
    }
    bar_.update(num_parts_);
    return report;
  }

 private:
  void begin(const std::string& what) {
    what_ = what;
    bar_.update(num_done_++, what_);
  }

  nlohmann::json ask(const std::vector<std::string>& words) {
    return torch_answer(words, [&] { bar_.update(num_done_ - 1, what_); });
  }

  plan::MachinePeak peak() {
    begin("products of matrices");
    std::vector<std::string> words = {"bench", "peak", "--json", "--device", options_.device};
    if (options_.threads > 0) {
      words.insert(words.end(), {"--threads", fmt::format("{}", options_.threads)});
    }
    if (options_.quick) words.emplace_back("--quick");
    return struct_of<plan::MachinePeak>(ask(words), "atoll-torch bench peak");
  }

  plan::MeasuredStep step(const BenchSize& size, const std::string& precision,
                          const plan::MachinePeak& peak) {
    begin(fmt::format("{}, {}", size.name, precision));
    plan::MeasuredStep step{
        .model = size.name,
        .precision = precision,
        .parameters = weights::num_parameters(size.model),
        .rows = size.rows,
        .sequence_length = size.sequence_length,
        .operations_per_token = plan::token_operations(size.model, size.sequence_length)};
    const plan::TrainingFit fit{.model = size.model,
                                .train = {.sequence_length = size.sequence_length,
                                          .device = peak.device,
                                          .precision = precision},
                                .rows = size.rows};
    const double needed = plan::state_bytes(fit) + plan::pass_bytes(fit, size.rows);
    if (needed > peak.memory_bytes) {
      step.left_out = fmt::format("needs about {}, {} has {}", format_bytes(needed),
                                  peak.device == "cpu" ? "this machine" : peak.device,
                                  format_bytes(peak.memory_bytes));
      if (!options_.requires_all) return step;
      throw InputError(fmt::format("--sizes: {} {}; name smaller ones", size.name, step.left_out));
    }
    const nlohmann::json answer = ask(step_words(size, precision, options_));
    step.tokens_per_s = answer.at("tokens_per_s");
    step.step_ms = answer.at("step_ms");
    step.peak_memory_bytes = answer.at("peak_memory_bytes");
    plan::add_share(step, peak);
    return step;
  }

  const BenchOptions& options_;
  const std::vector<std::string> precisions_;
  const double num_parts_;
  ProgressBar bar_;
  const Clock& clock_;
  double num_done_ = 0;
  std::string what_;
};

}  // namespace

std::vector<BenchSize> bench_sizes() {
  // The first has the shape that settings have by default, the last about the parameters of
  // SmolLM2-135M.
  return {{.name = "demo", .model = {.vocab_size = 4096}, .rows = 8, .sequence_length = 256},
          {.name = "34m",
           .model = {.vocab_size = 8192,
                     .hidden_size = 512,
                     .intermediate_size = 1408,
                     .num_layers = 8,
                     .num_heads = 8,
                     .num_kv_heads = 8,
                     .tie_embeddings = false},
           .rows = 8,
           .sequence_length = 512},
          {.name = "135m",
           .model = {.vocab_size = 32'768,
                     .hidden_size = 768,
                     .intermediate_size = 2048,
                     .num_layers = 12,
                     .num_heads = 12,
                     .num_kv_heads = 12,
                     .tie_embeddings = false},
           .rows = 4,
           .sequence_length = 512}};
}

plan::MachineReport measure_all(const BenchOptions& options, const Clock& clock) {
  BenchOptions chosen = options;
  if (chosen.quick && !chosen.requires_all) {
    std::erase_if(chosen.sizes, [](const BenchSize& size) { return size.name == "135m"; });
  }
  return MachineBench(chosen, clock).run();
}

}  // namespace atl::cli
