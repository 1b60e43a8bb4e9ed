#include "atoll/weights/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/codec/float_bits.h"
#include "atoll/codec/ggml_quantize.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_layout.h"

namespace atl::weights {
namespace {

using codec::GgmlType;

bool is_whole(int64_t width, GgmlType type) {
  return static_cast<size_t>(width) % codec::ggml_block(type).num_values == 0;
}

/// A tensor's values with a row for each output, in our order.
class Rows {
 public:
  Rows(const StoredTensor& tensor, const GgufPart& part)
      : values_(static_cast<size_t>(tensor.num_rows * tensor.width)),
        width_(std::ssize(values_) / gguf_num_rows(part.shape, part.order)) {
    tensor.read_all(/*has_inputs_first=*/false, values_);
    if (part.added == 0) return;
    for (float& value : values_) value += part.added;
  }
  int64_t count() const { return std::ssize(values_) / width_; }
  int64_t width() const { return width_; }
  std::span<const float> row(int64_t row) const {
    return std::span(values_).subspan(static_cast<size_t>(row * width_),
                                      static_cast<size_t>(width_));
  }

 private:
  std::vector<float> values_;
  int64_t width_;
};

/// As llama.cpp numbers them: what most of the file is.
uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ4_0:
      return 2;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kBF16:
      return 32;
    default:
      return 0;
  }
}

bool has_factors(const ModelConfig& config) { return config.rope_type == "llama3"; }

void refuse_unsayable(const ModelConfig& config) {
  const Family& family = family_of(config);
  const auto refuse_if = [&](bool is_so, const std::string& what) {
    if (!is_so) return;
    throw InputError(fmt::format("a GGUF file of architecture '{}' cannot have {}; write a folder",
                                 gguf_architecture_of(config).name, what));
  };
  constexpr std::string_view kUnsayable[] = {"dynamic", "yarn", "longrope"};
  refuse_if(std::ranges::count(kUnsayable, config.rope_type) > 0,
            fmt::format("{} scaling of positions ('rope_type')", config.rope_type));
  refuse_if(has_factors(config) &&
                (config.rope_low_freq_factor != 1 || config.rope_high_freq_factor != 4),
            "Llama 3's scaling with other factors than 1 and 4 ('rope_low_freq_factor', "
            "'rope_high_freq_factor')");
  refuse_if(config.sliding_window > 0 && family.has("full_layers"), "windows ('sliding_window')");
  constexpr std::string_view kWithBiases[] = {"llama", "qwen2", "granite", "gpt_neox", "gpt2"};
  const bool may_have_biases = std::ranges::count(kWithBiases, family.name) > 0;
  refuse_if(config.attention_bias && !may_have_biases, "biases in attention ('attention_bias')");
  refuse_if(config.mlp_bias && !may_have_biases, "biases in the MLP ('mlp_bias')");
  refuse_if(config.clip_qkv > 0 && family.name != "olmo",
            "clipped queries, keys and values ('clip_qkv')");
  const GgufArchitecture& architecture = gguf_architecture_of(config);
  refuse_if(family.has("num_experts") && config.router_normalises != architecture.router_normalises,
            fmt::format("'router_normalises' {}", config.router_normalises));
  refuse_if(family.has("layer_pattern") &&
                config.layer_pattern != gguf_layer_pattern(config, architecture),
            "layers in this order ('layer_pattern')");
  refuse_if(!architecture.says_score_scale && family.has("attention_multiplier") &&
                config.score_scale() != gguf_score_scale(config, architecture),
            "scores that are divided by another number ('attention_multiplier')");
  refuse_if((config.attention_softcap > 0) != (architecture.usual_attention_softcap > 0) ||
                (config.logits_softcap > 0) != (architecture.usual_logits_softcap > 0),
            fmt::format("'attention_softcap' {} and 'logits_softcap' {}", config.attention_softcap,
                        config.logits_softcap));
  refuse_if(!config.attention_bias && family.name == "gpt_neox",
            "no biases in attention ('attention_bias')");
  refuse_if(config.activation == "gelu" && family.name == "gpt2", "'activation' gelu");
}

/// Where a setting stands for another one, that one.
ModelConfig spelled_out(ModelConfig config) {
  config.attention_multiplier = config.score_scale();
  if (config.rope_local_theta == 0) config.rope_local_theta = config.rope_theta;
  return config;
}

/// What is finite stays so.
void require_held(const GgufPart& part, std::span<const float> values, const Bytes& row) {
  if (part.type == GgmlType::kF32) return;
  std::vector<float> held(values.size());
  codec::dequantize(part.type, row, held);
  for (size_t i = 0; i < values.size(); ++i) {
    if (codec::is_finite(held[i]) || !codec::is_finite(values[i])) continue;
    throw InputError(fmt::format("tensor '{}' has values that {} cannot hold; use --type {}",
                                 part.name, codec::ggml_block(part.type).name,
                                 part.type == GgmlType::kBF16 ? "f32" : "bf16"));
  }
}

}  // namespace

std::vector<int64_t> GgufPart::whole_shape() const {
  std::vector<int64_t> whole = shape;
  if (is_of_experts) whole.insert(whole.begin(), std::ssize(parameters));
  return whole;
}

std::vector<GgufPart> gguf_parts(const ModelConfig& config, GgmlType type) {
  const GgufArchitecture& architecture = gguf_architecture_of(config);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::vector<GgufPart> parts;
  std::map<std::string, size_t> of_experts;  // Places in `parts`.
  for (size_t i = 0; i < specs.size(); ++i) {
    GgufPart part{.name = gguf_name_of(specs[i]),
                  .parameters = {i},
                  .shape = gguf_shape_of(specs[i]),
                  .order = gguf_order_of(specs[i], config, architecture),
                  .added = gguf_added(specs[i], config),
                  .is_of_experts = specs[i].expert >= 0};
    if (part.is_of_experts) {
      const auto [place, is_new] = of_experts.emplace(part.name, parts.size());
      if (!is_new) {
        parts[place->second].parameters.push_back(i);
        continue;
      }
    }
    const bool stays = specs[i].role == Role::kPositions || specs[i].role == Role::kRouter;
    if (part.shape.size() > 1 && !stays) {
      part.type = is_whole(part.shape.back(), type) ? type : GgmlType::kF16;
    }
    parts.push_back(std::move(part));
  }
  if (config.tie_embeddings && architecture.needs_head) {
    parts.push_back(parts.front());
    parts.back().name = "output.weight";
  }
  return parts;
}

int64_t num_narrow(const std::vector<GgufPart>& parts, GgmlType type) {
  return std::ranges::count_if(parts, [&](const GgufPart& part) {
    return part.type != GgmlType::kF32 && part.type != type;
  });
}

void put_gguf_settings(codec::GgufWriter& file, const ModelConfig& config, const std::string& name,
                       GgmlType type) {
  refuse_unsayable(config);
  const Family& family = family_of(config);
  const GgufArchitecture& architecture = gguf_architecture_of(config);
  const ModelConfig said = spelled_out(config);
  const auto key = [&](const char* what) { return fmt::format("{}.{}", architecture.name, what); };
  const auto whole = [&](const char* what, int64_t value) {
    file.whole(key(what), static_cast<uint32_t>(value));
  };
  const auto real = [&](const char* what, double value) {
    file.real(key(what), static_cast<float>(value));
  };
  file.text("general.architecture", architecture.name);
  file.text("general.type", "model");
  file.text("general.name", name);
  file.whole("general.file_type", file_type(type));
  file.whole("general.quantization_version", 2);
  whole("block_count", config.num_layers);
  whole("context_length", config.max_positions);
  whole("embedding_length", config.hidden_size);
  whole("feed_forward_length", config.intermediate_size);
  whole("vocab_size", config.vocab_size);
  if (family.has("num_experts")) {
    whole("expert_count", config.num_experts);
    whole("expert_used_count", config.experts_per_token);
    whole("expert_feed_forward_length", config.intermediate_size);
  }
  whole("attention.head_count", config.num_heads);
  whole("attention.head_count_kv", config.num_kv_heads);
  real(gguf_norm_key(family), config.norm_eps);
  if (config.sliding_window > 0) whole("attention.sliding_window", config.sliding_window);
  for_each_gguf_real(architecture, family, said, [&](const char* what, double value, double) {
    if (value != 0) real(what, value);
  });
  if (family.has("parallel_residual")) {
    file.flag(key("use_parallel_residual"), config.parallel_residual);
  }
  if (family.has("activation") && config.activation != architecture.activation) {
    file.text(key(kGgufActivation), config.activation);
  }
  if (!family.turns()) return;
  whole("attention.key_length", config.head_size());
  whole("attention.value_length", config.head_size());
  whole("rope.dimension_count", config.rotary_size());
  real("rope.freq_base", config.rope_theta);
  if (config.rope_type == "linear") {
    file.text(key("rope.scaling.type"), "linear");
    real("rope.scaling.factor", config.rope_factor);
  }
  if (has_factors(config)) {
    whole("rope.scaling.original_context_length", config.rope_original_positions);
  }
}

void put_gguf_tensors(codec::GgufWriter& file, const ModelConfig& config,
                      const std::vector<GgufPart>& parts) {
  if (has_factors(config)) {
    file.tensor(kGgufRopeFactors, {config.rotary_size() / 2}, GgmlType::kF32);
  }
  for (const GgufPart& part : parts) file.tensor(part.name, part.whole_shape(), part.type);
}

void for_each_tensor(const ModelFiles& model, const ModelConfig& config,
                     const std::vector<GgufPart>& parts,
                     const std::function<void(std::span<const std::byte>)>& put) {
  const auto pad = [&](size_t num_bytes) {
    put(as_byte_span(codec::GgufWriter::padding_behind(num_bytes)));
  };
  if (has_factors(config)) {
    std::vector<float> factors;
    for (const double factor : llama3_factors(config))
      factors.push_back(static_cast<float>(factor));
    put(std::as_bytes(std::span(factors)));
    pad(factors.size() * sizeof(float));
  }
  for (const GgufPart& part : parts) {
    const RowOrder to_ours = part.order.back();
    size_t num_bytes = 0;
    for (const size_t parameter : part.parameters) {
      const Rows rows(model.tensors()[parameter], part);
      Bytes bytes;
      for (int64_t i = 0; i < rows.count(); ++i) {
        const std::span<const float> values = rows.row(to_ours.place_of(i));
        const Bytes row = codec::quantize(part.type, values);
        require_held(part, values, row);
        bytes.insert(bytes.end(), row.begin(), row.end());
      }
      put(bytes);
      num_bytes += bytes.size();
    }
    pad(num_bytes);
  }
}

ModelConfig as_gguf_says(ModelConfig config) {
  if (config.architecture == "mistral" && config.sliding_window == 0) config.architecture = "llama";
  const GgufArchitecture& architecture = gguf_architecture_of(config);
  if (architecture.says_score_scale) config.attention_multiplier = config.score_scale();
  for_each_gguf_real(architecture, family_of(config), config,
                     [](const char*, double& value, double) { value = as_single(value); });
  config.norm_eps = as_single(config.norm_eps);
  config.rope_theta = as_single(config.rope_theta);
  config.rope_factor = as_single(config.rope_factor);
  config.router_aux_loss = 0;
  if (config.rotary_size() > 0) {
    config.partial_rotary_factor =
        static_cast<double>(config.rotary_size()) / static_cast<double>(config.head_size());
  }
  return canonical(config);
}

int64_t num_changed(const ModelFiles& model, const ModelFiles& file,
                    const std::vector<GgufPart>& parts) {
  int64_t count = 0;
  const auto add = [&](const GgufPart& part, size_t parameter) {
    const Rows rows(model.tensors()[parameter], part);
    const StoredTensor& written = file.tensors()[parameter];
    std::vector<float> wanted(static_cast<size_t>(rows.width()));
    std::vector<float> found(wanted.size());
    for (int64_t i = 0; i < rows.count(); ++i) {
      codec::dequantize(part.type, codec::quantize(part.type, rows.row(i)), wanted);
      if (part.added != 0) {
        for (float& value : wanted) value -= part.added;
      }
      written.read(i, 0, found);
      if (std::memcmp(wanted.data(), found.data(), found.size() * sizeof(float)) == 0) continue;
      for (size_t j = 0; j < found.size(); ++j) {
        count += static_cast<int64_t>(std::memcmp(&wanted[j], &found[j], sizeof(float)) != 0);
      }
    }
  };
  for (const GgufPart& part : parts) {
    for (const size_t parameter : part.parameters) add(part, parameter);
  }
  return count;
}

}  // namespace atl::weights
