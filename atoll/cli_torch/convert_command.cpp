#include "atoll/cli_torch/convert_command.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli_torch/convert_gguf.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/data/draft_folder.h"
#include "atoll/model/kept_layers.h"
#include "atoll/model/model.h"
#include "atoll/tokenizer/model_texts.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_files.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  std::string model;
  std::string out;
  std::string dtype = "auto";
  std::string type = "auto";  // Of a GGUF file.
  double max_shard_gb = 5;
  std::vector<int64_t> layers;  // That are kept; none: all.
  bool verify = false;
  bool strict = false;
  bool json = false;
};

constexpr const char* kFooter = R"(
MODEL is a Hugging Face folder, a GGUF file or a run directory (its newest checkpoint); OUT becomes
a Hugging Face folder with the weights, config.json and the tokenizer's files, or, where its name
ends in .gguf, one file with all of them, as llama.cpp runs it. Optimizer state stays behind.
--dtype auto and --type auto keep the type that MODEL is stored in (a file's: F32 where there are
several): then every value comes back bit for bit. --type is about matrices; vectors are F32 in
such files.
--layers keeps some of the layers: where a smaller model begins that is to learn from MODEL
(train.teacher).
--verify reads OUT again: every value must be the nearest to MODEL's that the type has. It says by
how much the log-probabilities differ that both give to some tokens.

Examples:
  atoll convert runs/demo my-model --dtype bf16 --verify
  atoll convert my-model sharded --max-shard-size 2
  atoll convert my-model small --layers 0,1,2,29
  atoll convert my-model my-model.gguf --type q8_0 --verify)";

/// A model in one flat FP32 buffer.
model::Model load_flat(const weights::ModelConfig& config, const weights::ModelFiles& files) {
  model::Model model(config, at::kCPU, model::Purpose::kInference);
  model::load_weights(model, files);
  return model;
}

weights::DType type_of(const std::string& name, const weights::ModelFiles& source) {
  if (name == "fp32") return weights::DType::kF32;
  if (name == "fp16") return weights::DType::kF16;
  if (name == "bf16") return weights::DType::kBF16;
  return source.common_type();
}

at::ScalarType scalar_type(weights::DType type) {
  if (type == weights::DType::kF16) return at::kHalf;
  return type == weights::DType::kBF16 ? at::kBFloat16 : at::kFloat;
}

/// FP16 ends at 65504, BF16 a little under FP32: what is over it would become infinite.
void require_representable(const model::Parameters& parameters, weights::DType type) {
  if (type == weights::DType::kF32) return;
  for (const weights::ParameterSpec& spec : parameters.specs()) {
    const at::Tensor values = parameters.view(spec.name);
    const at::Tensor lost =
        values.isfinite().logical_and_(values.to(scalar_type(type)).isfinite().logical_not_());
    if (!lost.any().item<bool>()) continue;
    throw InputError(fmt::format("tensor '{}' has values that {} cannot hold; use --dtype {}",
                                 spec.name, weights::name_of(type),
                                 type == weights::DType::kF16 ? "bf16" : "fp32"));
  }
}

at::Tensor log_probabilities(const model::Model& model) {
  const at::NoGradGuard no_grad;
  const int64_t vocabulary = model.config().vocab_size;
  const int64_t length = std::min<int64_t>(64, model.config().context());
  const at::Tensor tokens_BT =
      (at::arange(length, at::kLong) * 7919 + 13).remainder(vocabulary).unsqueeze(0);
  return at::log_softmax(model.logits(model.hidden_BTC(tokens_BT)), -1);
}

/// Every value in the folder must be the nearest that the type has. The largest difference of
/// log-probabilities.
double verify(const model::Model& source, const fs::path& folder, weights::DType type) {
  if (weights::load_hf_config(folder).config != source.config()) {
    throw InputError("what was written describes another model than was read");
  }
  const model::Model written =
      load_flat(source.config(), weights::ModelFiles(folder, source.config()));
  const at::Tensor& source_P = source.parameters().values_P();
  const at::Tensor wanted_P = source_P.to(scalar_type(type)).to(at::kFloat);
  const at::Tensor& found_P = written.parameters().values_P();
  const at::Tensor differs_P =
      (wanted_P != found_P).logical_and((wanted_P.isnan() & found_P.isnan()).logical_not());
  if (const int64_t count = differs_P.sum().item<int64_t>(); count > 0) {
    throw InputError(fmt::format("{} of {} values came back changed", count, wanted_P.numel()));
  }
  return largest_difference(source, written);
}

void copy_tokenizer(const fs::path& source, const fs::path& target) {
  for (const auto& [name, text] : tokenizer::model_texts(source)) {
    fs::create_directories((target / name).parent_path());
    write_file_atomically(target / name, text);
  }
  if (const auto text = tokenizer::tokenizer_text(source, "tokenizer.json")) {
    return write_file_atomically(target / "tokenizer.json", *text);
  }
  if (!tokenizer::find_tokenizer(source)) return;
  try {
    write_file_atomically(target / "tokenizer.json", tokenizer::Tokenizer::load(source).json());
  } catch (const InputError& error) {
    fmt::print(stderr, "atoll: warning: no tokenizer was written: {}\n", error.what());
  }
}

void report(const ConvertArguments& arguments, const weights::ModelConfig& config,
            const std::string& type, std::optional<double> difference, int64_t num_narrow = 0) {
  if (arguments.json) {
    nlohmann::ordered_json json{{"model", arguments.out},
                                {"architecture", config.architecture},
                                {"parameters", weights::num_parameters(config)},
                                {"dtype", type}};
    if (num_narrow > 0) json["f16_matrices"] = num_narrow;
    if (difference) json["largest_logprob_difference"] = *difference;  // NaN becomes null.
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("{}: {}, {} parameters, {}\n", arguments.out, config.architecture,
             weights::num_parameters(config), type);
  if (num_narrow > 0) {
    fmt::print("{} matrices are F16: their rows are no whole blocks of {}\n", num_narrow, type);
  }
  if (difference) {
    fmt::print(
        "verified: every value is there, the nearest that {} has; log-probabilities differ by "
        "{:.1e} "
        "at most\n",
        type, *difference);
  }
}

/// What is said of the other kind of output.
void refuse_foreign(const CLI::App& command, bool is_file) {
  const auto refuse = [&](const char* option, const char* place, const char* instead) {
    if (command.count(option) == 0) return;
    throw UsageError(fmt::format("{} is for {}; {}", option, place, instead));
  };
  if (!is_file) refuse("--type", "files whose names end in .gguf", "a folder takes --dtype");
  if (is_file) refuse("--dtype", "folders", "a GGUF file takes --type");
  if (is_file) refuse("--max-shard-size", "folders", "a GGUF file is one");
  if (is_file) refuse("--layers", "folders", "convert that folder afterwards");
}

/// The model's name: that of what was given, not of a checkpoint in it.
std::string name_of_model(const ConvertArguments& arguments) {
  const fs::path path = data::without_slash(fs::absolute(arguments.model).lexically_normal());
  return (path.extension() == ".gguf" ? path.stem() : path.filename()).string();
}

void convert_file(const ConvertArguments& arguments, const fs::path& source,
                  const fs::path& target) {
  const GgufReport written = convert_to_gguf({.source = source,
                                              .target = target,
                                              .name = name_of_model(arguments),
                                              .type = arguments.type,
                                              .verify = arguments.verify,
                                              .strict = arguments.strict});
  report(arguments, written.config, written.type, written.difference, written.num_narrow);
}

void convert(const ConvertArguments& arguments, const CLI::App& command) {
  const bool is_file = fs::path(arguments.out).extension() == ".gguf";
  refuse_foreign(command, is_file);
  const fs::path source = weights::resolve_model(arguments.model);
  const fs::path target = data::without_slash(arguments.out);
  if (target.empty()) throw UsageError("name the folder to make");
  if (fs::exists(target)) {
    throw UsageError(fmt::format("'{}' exists; name a {} that does not", target.string(),
                                 is_file ? "file" : "folder"));
  }
  if (is_file) return convert_file(arguments, source, target);
  const weights::HfConfig found = weights::load_hf_config(source);
  const weights::ModelFiles files(source, found.config);
  model::Model model = load_flat(found.config, files);
  if (!arguments.layers.empty()) model = model::with_layers(model, arguments.layers);
  report_not_finite(model, source, arguments.strict);
  const weights::DType type = type_of(arguments.dtype, files);
  require_representable(model.parameters(), type);
  const at::Tensor& values_P = model.parameters().values_P();
  const std::optional<double> difference = data::naming(target, [&]() -> std::optional<double> {
    data::DraftFolder draft(target);
    weights::save_hf_model(
        draft.path(), model.config(), found.ids,
        {values_P.const_data_ptr<float>(), static_cast<size_t>(values_P.numel())},
        {.type = type, .max_shard_bytes = static_cast<int64_t>(arguments.max_shard_gb * 1e9)});
    copy_tokenizer(source, draft.path());
    std::optional<double> verified;
    if (arguments.verify) verified = verify(model, draft.path(), type);
    draft.publish();
    return verified;
  });
  report(arguments, model.config(), weights::name_of(type), difference);
}

}  // namespace

double largest_difference(const model::Model& source, const model::Model& written) {
  const at::Tensor difference = log_probabilities(source) - log_probabilities(written);
  const auto largest = difference.abs().max().item<double>();
  // Not finite weights make results that are no numbers.
  if (std::isnan(largest) && source.parameters().not_finite().empty()) {
    throw InputError("the log-probabilities of what was written are not numbers");
  }
  return largest;
}

void add_convert_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("convert", "Write a model as a Hugging Face folder or a GGUF file");
  auto arguments = std::make_shared<ConvertArguments>();
  command
      ->add_option(
          "model", arguments->model,
          "a Hugging Face model folder, a GGUF file, or a run directory (its newest checkpoint)")
      ->required();
  command->add_option("out", arguments->out, "the folder to make, or the file: NAME.gguf")
      ->required();
  command->add_option("--dtype", arguments->dtype, "of a folder's weights: auto, fp32, bf16, fp16")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}));
  command
      ->add_option("--type", arguments->type,
                   fmt::format("of a file's matrices: {}", fmt::join(gguf_type_names(), ", ")))
      ->capture_default_str()
      ->check(CLI::IsMember(gguf_type_names()));
  command->add_option("--max-shard-size", arguments->max_shard_gb, "of a file, in GB")
      ->capture_default_str()
      ->check(real_number(1e-6, 1e6));
  command
      ->add_option("--layers", arguments->layers,
                   "the layers to keep, from 0 in their order, with commas between (default: all)")
      ->delimiter(',');
  command->add_flag("--verify", arguments->verify, "compare what was written with what was read");
  command->add_flag("--strict", arguments->strict, "refuse weights that are not finite");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kFooter);
  command->callback([arguments, command] { convert(*arguments, *command); });
}

}  // namespace atl::cli
