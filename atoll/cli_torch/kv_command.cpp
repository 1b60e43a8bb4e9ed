#include "atoll/cli_torch/kv_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli/whole_number.h"
#include "atoll/cli_torch/kv_arguments.h"
#include "atoll/cli_torch/layer_source.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/kv_model/fit.h"
#include "atoll/kv_model/measure.h"
#include "atoll/kv_model/sensitivity.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {
namespace {

struct TextArguments {
  ModelArguments model;
  std::vector<std::string> files;
  int64_t windows = 0;
};

struct FitArguments {
  TextArguments text;
  std::string out;
  int64_t prefix = 2048;
  int64_t sensitivity_windows = 12;
  kv_model::FitOptions options;
};

struct MeasureArguments {
  TextArguments text;
  std::string profile;
  kv_model::WindowShape shape;
  std::vector<std::string> levels;  // Names; none: all.
  bool json = false;
};

constexpr const char* kFitFooter = R"(
Reads windows of the texts with MODEL and writes what its lossy levels need: tables of how often
which number comes, CacheGen's steps for each layer's keys and values, and for the transform levels
the directions in which groups of layers vary where the loss is sensitive to errors. The last takes
a copy of the model in fp32 with gradients: 8 bytes a parameter.
Texts that MODEL is to be measured on should not be among these.

Example:
  atoll kv fit my-model --text fit/*.txt --out my-model.kvp)";

constexpr const char* kMeasureFooter = R"(
For each window, the keys and values of its first tokens are encoded and decoded, and the model
predicts the tokens behind them on what came back. Prints for each way how many bits an element
takes, with all that is stored, by how much perplexity grows, with a 95 % interval over windows
where there are several, and millions of elements that are encoded and decoded in a second of one
core.

Examples:
  atoll kv measure my-model --text held-out/*.txt --windows 16
  atoll kv measure my-model --profile my-model.kvp --text held-out/*.txt --json)";

// How dear errors are is told by so many first tokens of a window and the loss of as many behind.
constexpr int64_t kSensitivePrefix = 1024;
constexpr int64_t kDrawn = 512;
constexpr uint64_t kSeed = 1;

/// Windows of so many tokens, spread evenly over all texts together; none reaches over two texts.
std::vector<std::vector<int64_t>> windows_of(const TextArguments& arguments,
                                             const LoadedModel& loaded, int64_t length) {
  std::vector<std::vector<int64_t>> all;
  tokenizer::Encoder encoder(loaded.tokenizer);
  for (const std::string& file : arguments.files) {
    std::vector<tokenizer::TokenId> ids;
    encoder.encode(read_text(file), tokenizer::SpecialText::kToken, ids);
    for (int64_t begin = 0; begin + length <= std::ssize(ids); begin += length) {
      all.emplace_back(ids.begin() + begin, ids.begin() + begin + length);
    }
  }
  warn_lost(encoder);
  const int64_t found = std::ssize(all);
  if (found < arguments.windows) {
    throw InputError(fmt::format(
        "the texts have {} windows of {} tokens, and --windows asks for {}: name more texts, or "
        "fewer windows",
        found, length, arguments.windows));
  }
  std::vector<std::vector<int64_t>> chosen;
  for (int64_t i = 0; i < arguments.windows; ++i) {
    chosen.push_back(std::move(all[static_cast<size_t>(i * found / arguments.windows)]));
  }
  return chosen;
}

void require_readable(const model::Model& model, int64_t length) {
  if (!model.device().is_cpu()) {
    throw UsageError("--device: keys and values are coded on the CPU as yet; leave it out");
  }
  const int64_t most = std::min(model.config().context(), model.config().steady_positions());
  if (length <= most) return;
  throw UsageError(fmt::format(
      "windows of {} tokens are longer than the {} that the model reads; give a smaller --prefix",
      length, most));
}

kv_model::Sensitivity sensitivity_of(const std::filesystem::path& folder,
                                     std::vector<std::vector<int64_t>> windows, int64_t prefix,
                                     const Clock& clock) {
  const weights::ModelConfig config = weights::load_hf_config(folder).config;
  model::Model model(config, at::kCPU, model::Purpose::kTraining);
  model::load_weights(model, weights::ModelFiles(folder, config));
  ProgressBar bar("sensitivity", static_cast<double>(windows.size()), clock);
  double done = 0;
  return kv_model::measure_sensitivity(model, windows, prefix, kSeed,
                                       [&] { bar.update(done += 1); });
}

/// Fitting takes hours: a folder that is mistyped is found before them, and is not made.
void require_place(const std::string& file) {
  const auto folder = std::filesystem::path(file).parent_path();
  std::error_code none;
  if (!folder.empty() && !std::filesystem::is_directory(folder, none)) {
    throw UsageError(
        fmt::format("--out: there is no folder '{}' for '{}'; make it, or name another",
                    folder.string(), file));
  }
  require_output_file(file, "--out");
}

void fit(const FitArguments& arguments) {
  const SystemClock clock;
  const std::string digest = layers_of_files(arguments.text.model, clock).digest;
  const LoadedModel loaded = load_model(arguments.text.model);
  const int64_t length = arguments.prefix + kDrawn;
  require_readable(loaded.model, length);
  std::vector<std::vector<int64_t>> windows = windows_of(arguments.text, loaded, length);
  std::vector<std::vector<int64_t>> some;
  const int64_t num_some = std::min(arguments.sensitivity_windows, arguments.text.windows);
  const int64_t sensitive = std::min(arguments.prefix, kSensitivePrefix);
  for (int64_t i = 0; i < num_some; ++i) {
    const auto& window = windows[static_cast<size_t>(i * arguments.text.windows / num_some)];
    some.emplace_back(window.begin(), window.begin() + sensitive + kDrawn);
  }
  const kv_model::Sensitivity sensitivity =
      sensitivity_of(loaded.folder, std::move(some), sensitive, clock);
  for (std::vector<int64_t>& ids : windows) ids.resize(static_cast<size_t>(arguments.prefix));
  ProgressBar bar("fit", static_cast<double>(windows.size()), clock);
  double done = 0;
  kv::Profile profile = kv_model::fit_profile(loaded.model, digest, windows, sensitivity,
                                              arguments.options, [&] { bar.update(done += 1); });
  const Bytes bytes = kv::write_profile(profile);
  write_file_atomically(arguments.out, as_text(bytes));
  size_t num_anchored = 0;
  for (const kv::VectorwisePlane& plane : profile.vectorwise.front().planes_P) {
    if (plane.mode == kv::VectorwiseMode::kAnchored) ++num_anchored;
  }
  fmt::print("{}: {}, {} vectorwise levels ({} of {} planes anchored), {} transform levels\n",
             arguments.out, format_bytes(static_cast<double>(bytes.size())),
             profile.vectorwise.size(), num_anchored, profile.num_planes(),
             profile.transforms.size());
}

nlohmann::ordered_json json_of(const kv_model::Rates& found, const MeasureArguments& arguments) {
  nlohmann::ordered_json json{{"perplexity", found.perplexity},
                              {"windows", arguments.text.windows},
                              {"prefix", arguments.shape.prefix},
                              {"scored", arguments.shape.scored},
                              {"levels", nlohmann::ordered_json::array()}};
  for (const kv_model::Rate& rate : found.rates) {
    json["levels"].push_back({{"name", rate.name},
                              {"bits", rate.bits},
                              {"perplexity_growth", rate.growth},
                              {"half_interval", rate.half_interval},
                              {"encoded_per_s", rate.encoded_per_s},
                              {"decoded_per_s", rate.decoded_per_s},
                              {"loss_differences", rate.loss_differences}});
  }
  return json;
}

/// Of one window there is no interval.
std::string growth_text(const kv_model::Rate& rate) {
  const std::string growth = fmt::format("{:+.2f} %", 100 * rate.growth);
  if (!std::isfinite(rate.half_interval)) return growth;
  return fmt::format("{} +- {:.2f}", growth, 100 * rate.half_interval);
}

void print_table(const kv_model::Rates& found, const MeasureArguments& arguments) {
  fmt::print("{} windows: {} tokens coded, the next {} scored; perplexity {:.3f} as they are\n",
             arguments.text.windows, arguments.shape.prefix, arguments.shape.scored,
             found.perplexity);
  fmt::print("{:<24}{:>10}{:>24}{:>14}{:>14}\n", "level", "bits", "perplexity", "encode", "decode");
  fmt::print("{:<24}{:>10}{:>24}{:>14}{:>14}\n", "", "/element", "", "M/s", "M/s");
  for (const kv_model::Rate& rate : found.rates) {
    fmt::print("{:<24}{:>10.3f}{:>24}{:>14.1f}{:>14.1f}\n", rate.name, rate.bits, growth_text(rate),
               rate.encoded_per_s / 1e6, rate.decoded_per_s / 1e6);
  }
}

void keep_named(std::span<const std::string> names,
                std::vector<std::unique_ptr<kv_model::Scheme>>& schemes) {
  std::string known;
  for (const auto& scheme : schemes) known += (known.empty() ? "" : ", ") + scheme->name();
  for (const std::string& name : names) {
    const auto is_it = [&](const auto& scheme) { return scheme->name() == name; };
    if (std::ranges::none_of(schemes, is_it)) {
      throw UsageError(fmt::format("--levels: there is no '{}' among {}", name, known));
    }
  }
  if (names.empty()) return;
  std::erase_if(schemes, [&](const auto& scheme) {
    return std::ranges::find(names, scheme->name()) == names.end();
  });
}

void measure(const MeasureArguments& arguments) {
  const SystemClock clock;
  const LoadedModel loaded = load_model(arguments.text.model);
  require_readable(loaded.model, arguments.shape.length());
  LoadedProfile loaded_profile;  // Outlives its schemes.
  auto schemes = kv_model::schemes_without_profile();
  std::string digest;
  if (!arguments.profile.empty()) {
    digest = layers_of_files(arguments.text.model, clock).digest;
    loaded_profile = load_profile("--profile", arguments.profile, digest);
    for (auto& scheme : kv_model::schemes_of(loaded_profile.profile, loaded_profile.id)) {
      schemes.push_back(std::move(scheme));
    }
  }
  keep_named(arguments.levels, schemes);
  const auto windows = windows_of(arguments.text, loaded, arguments.shape.length());
  ProgressBar bar("measure", static_cast<double>(windows.size()), clock);
  double done = 0;
  const kv_model::Rates found = kv_model::measure_rates(
      loaded.model, digest, windows, arguments.shape, schemes, [&] { bar.update(done += 1); });
  if (arguments.json) {
    fmt::print("{}\n", json_of(found, arguments).dump());
  } else {
    print_table(found, arguments);
  }
}

void add_text_options(CLI::App& command, TextArguments& arguments, int64_t windows) {
  add_model_arguments(command, arguments.model);
  command.add_option("--text", arguments.files, "text files (UTF-8)")->required();
  arguments.windows = windows;
  command
      .add_option("--windows", arguments.windows,
                  fmt::format("that are read, spread over all texts (default: {})", windows))
      ->check(whole_number<int64_t>(1, 100'000));
}

void add_fit_command(CLI::App& app) {
  auto* command = app.add_subcommand("fit", "Fit a profile of a model's keys and values to texts");
  auto arguments = std::make_shared<FitArguments>();
  add_text_options(*command, arguments->text, 24);
  command->add_option("--out", arguments->out, "the profile's file")->required();
  command
      ->add_option("--prefix", arguments->prefix,
                   "tokens of a window whose keys and values count (default: 2048)")
      ->check(whole_number<int64_t>(64, 1 << 20));
  command
      ->add_option("--sensitivity-windows", arguments->sensitivity_windows,
                   "how many of the windows say how dear errors are (default: 12)")
      ->check(whole_number<int64_t>(1, 100'000));
  command
      ->add_option("--group-layers", arguments->options.group_layers,
                   "layers that are transformed together (default: 5)")
      ->check(whole_number<int64_t>(1, 64));
  command
      ->add_option("--bits", arguments->options.transform_bits,
                   "bits per element that the transform levels aim at (default: 1.4,1.05,0.75)")
      ->delimiter(',')
      ->check(real_number(0.05, 8));
  command
      ->add_option("--vectorwise-bits", arguments->options.vectorwise_bits,
                   "the same of CacheGen's levels (default: 2.15)")
      ->delimiter(',')
      ->check(real_number(0.5, 10));
  command->footer(kFitFooter);
  command->callback([arguments] {
    require_place(arguments->out);
    fit(*arguments);
  });
}

void add_measure_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("measure", "Measure bits and perplexity of compressed keys and values");
  auto arguments = std::make_shared<MeasureArguments>();
  add_text_options(*command, arguments->text, 64);
  command->add_option("--profile", arguments->profile, "a profile, whose levels are measured too");
  command->add_option("--prefix", arguments->shape.prefix, "tokens that are coded (default: 2048)")
      ->check(whole_number<int64_t>(32, 1 << 20));
  command
      ->add_option("--scored", arguments->shape.scored,
                   "tokens behind them that are predicted (default: 512)")
      ->check(whole_number<int64_t>(1, 1 << 20));
  command
      ->add_option("--levels", arguments->levels,
                   "only these, as the table names them, with commas between (default: all)")
      ->delimiter(',');
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kMeasureFooter);
  command->callback([arguments] { measure(*arguments); });
}

}  // namespace

void add_kv_command(CLI::App& app) {
  auto* command = app.add_subcommand("kv", "Compress keys and values: profiles and measurements");
  command->require_subcommand(1);
  add_fit_command(*command);
  add_measure_command(*command);
}

}  // namespace atl::cli
