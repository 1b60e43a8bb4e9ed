#include "atoll/cli_torch/convert_gguf.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/cli_torch/model_arguments.h"
#include "atoll/data/draft_file.h"
#include "atoll/tokenizer/gguf_tokenizer_export.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_export.h"
#include "atoll/weights/hf_folder.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using codec::GgmlType;

constexpr std::array kTypes = {std::pair{"f32", GgmlType::kF32}, std::pair{"f16", GgmlType::kF16},
                               std::pair{"bf16", GgmlType::kBF16},
                               std::pair{"q8_0", GgmlType::kQ8_0},
                               std::pair{"q4_0", GgmlType::kQ4_0}};

GgmlType type_of(const std::string& name, const weights::ModelFiles& source) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  const weights::DType common = source.common_type();
  if (common == weights::DType::kF16) return GgmlType::kF16;
  return common == weights::DType::kBF16 ? GgmlType::kBF16 : GgmlType::kF32;
}

/// Nothing, with a warning, where there is none that can be read.
std::optional<tokenizer::Tokenizer> tokenizer_in(const fs::path& source) {
  std::string why = "there is none";
  try {
    if (tokenizer::find_tokenizer(source)) return tokenizer::Tokenizer::load(source);
  } catch (const InputError& error) {
    why = error.what();
  }
  fmt::print(stderr, "atoll: warning: no tokenizer was written: {}\n", why);
  return {};
}

void put_texts(codec::GgufWriter& file, const fs::path& source, const weights::HfConfig& model) {
  const std::optional<tokenizer::Tokenizer> tokenizer = tokenizer_in(source);
  const tokenizer::GgufIds ids = tokenizer::gguf_ids(
      source, tokenizer ? &*tokenizer : nullptr, model.ids.begin_of_text.value_or(-1),
      model.ids.ends, model.ids.padding.value_or(-1));
  if (tokenizer) {
    tokenizer::put_gguf_tokenizer(file, *tokenizer, ids, model.config.vocab_size);
  } else {
    tokenizer::put_no_gguf_tokenizer(file, ids);
  }
  tokenizer::put_gguf_template(file, source);
}

}  // namespace

std::vector<std::string> gguf_type_names() {
  std::vector<std::string> names = {"auto"};
  for (const auto& [name, type] : kTypes) names.emplace_back(name);
  return names;
}

GgufReport convert_to_gguf(const GgufArguments& arguments) {
  const weights::HfConfig found = weights::load_hf_config(arguments.source);
  const auto files = std::make_shared<const weights::ModelFiles>(arguments.source, found.config);
  const model::Model model(found.config, files);
  report_not_finite(model, arguments.source, arguments.strict);
  const GgmlType type = type_of(arguments.type, *files);
  const std::vector<weights::GgufPart> parts = weights::gguf_parts(found.config, type);
  codec::GgufWriter head;
  weights::put_gguf_settings(head, found.config, arguments.name, type);
  put_texts(head, arguments.source, found);
  const bool has_pattern = weights::family_of(found.config).has("layer_pattern");
  if (found.config.sliding_window > 0 && !has_pattern) {
    fmt::print(
        stderr,
        "atoll: warning: llama.cpp does not know of this model's window: there, texts of more "
        "than {} tokens come out otherwise\n",
        found.config.sliding_window);
  }
  weights::put_gguf_tensors(head, found.config, parts);

  GgufReport report{.config = found.config,
                    .type = std::string(codec::ggml_block(type).name),
                    .num_narrow = weights::num_narrow(parts, type)};
  data::DraftFile draft(arguments.target);
  draft.append(as_byte_span(head.head()));
  weights::for_each_tensor(*files, found.config, parts,
                           [&](std::span<const std::byte> bytes) { draft.append(bytes); });
  const weights::ModelConfig config = weights::load_hf_config(draft.path()).config;
  if (config != weights::as_gguf_says(found.config)) {
    throw InputError("what was written describes another model than was read");
  }
  if (arguments.verify) {
    const auto written = std::make_shared<const weights::ModelFiles>(draft.path(), config);
    if (const int64_t count = weights::num_changed(*files, *written, parts); count > 0) {
      throw InputError(fmt::format("{} of {} values came back changed", count,
                                   weights::num_parameters(found.config)));
    }
    report.difference = largest_difference(model, model::Model(config, written));
  }
  draft.publish();
  return report;
}

}  // namespace atl::cli
