#include "atoll/weights/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

using codec::GgufFile;
using codec::GgufTensor;
using Json = nlohmann::json;

struct Architecture {
  std::string_view name;    // general.architecture,
  std::string_view family;  // and ours.
  /// Rows of queries and keys lie so that pairs that turn together are neighbours; with us one half
  /// of a head turns with the other.
  bool turns_neighbours = false;
};

constexpr std::array kArchitectures = {
    Architecture{"llama", "llama", true}, Architecture{"qwen2", "qwen2"},
    Architecture{"qwen3", "qwen3"}, Architecture{"olmo2", "olmo2"}};

const Architecture& architecture_of(const GgufFile& file) {
  const std::string name = file.text("general.architecture").value_or("");
  const auto* const found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found != kArchitectures.end()) return *found;
  std::string known;
  for (const Architecture& one : kArchitectures)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  file.fail(fmt::format("the architecture \"{}\" is not supported; {} are", name, known));
}

constexpr const char* kRopeFactors = "rope_freqs.weight";

class Settings {
 public:
  explicit Settings(const GgufFile& file) : file_(file), architecture_(architecture_of(file)) {}

  Json config() {
    const Family& family = *find_family(family_name());
    const int64_t hidden = count("embedding_length");
    const int64_t heads = count("attention.head_count");
    Json config = {{"model_type", family.name},
                   {"architectures", {family.hf_class}},
                   {"vocab_size", vocab_size()},
                   {"hidden_size", hidden},
                   {"intermediate_size", count("feed_forward_length")},
                   {"num_hidden_layers", count("block_count")},
                   {"num_attention_heads", heads},
                   {"num_key_value_heads", whole("attention.head_count_kv").value_or(heads)},
                   {"head_dim", whole("attention.key_length").value_or(hidden / heads)},
                   {"max_position_embeddings", count("context_length")},
                   {"rms_norm_eps", real("attention.layer_norm_rms_epsilon").value_or(1e-5)},
                   {"rope_theta", real("rope.freq_base").value_or(10'000)},
                   {"tie_word_embeddings", file_.find("output.weight") == nullptr},
                   {"hidden_act", "silu"}};
    if (family.has("attention_bias")) {
      config["attention_bias"] = file_.find("blk.0.attn_q.bias") != nullptr;
    }
    if (family.has("mlp_bias")) config["mlp_bias"] = file_.find("blk.0.ffn_up.bias") != nullptr;
    if (const auto window = whole("attention.sliding_window")) {
      if (family.name != "mistral") file_.fail("windows are not supported in this architecture");
      config["sliding_window"] = *window;
    }
    if (const Json scaling = rope_scaling(config); !scaling.is_null()) {
      config["rope_scaling"] = scaling;
    }
    check_heads(config);
    add_ids(config);
    return config;
  }

 private:
  std::string key(const char* name) const { return fmt::format("{}.{}", architecture_.name, name); }
  std::optional<int64_t> whole(const char* name) const { return file_.whole(key(name)); }
  /// Rounded to what a decimal of few digits means: files hold singles.
  std::optional<double> real(const char* name) const {
    const auto value = file_.real(key(name));
    if (!value) return {};
    if (!std::isfinite(*value)) file_.fail(fmt::format("'{}' is no number", key(name)));
    return std::stod(fmt::format("{}", static_cast<float>(*value)));
  }
  int64_t count(const char* name) const {
    const auto value = whole(name);
    if (!value || *value <= 0)
      file_.fail(fmt::format("'{}' is missing or not positive", key(name)));
    return *value;
  }

  std::string family_name() const {
    const bool has_window = architecture_.family == "llama" && whole("attention.sliding_window");
    return has_window ? "mistral" : std::string(architecture_.family);
  }

  int64_t vocab_size() const {
    const GgufTensor* const embedding = file_.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      file_.fail("there is no matrix 'token_embd.weight'");
    }
    return embedding->shape[0];
  }

  void check_heads(const Json& config) const {
    const auto turning = whole("rope.dimension_count");
    if (turning && *turning != config["head_dim"].get<int64_t>()) {
      file_.fail(fmt::format("only {} of a head's {} elements turn, which '{}' has not", *turning,
                             config["head_dim"].get<int64_t>(),
                             config["model_type"].get<std::string>()));
    }
    const auto values = whole("attention.value_length");
    if (values && *values != config["head_dim"].get<int64_t>()) {
      file_.fail("keys and values of different lengths are not supported");
    }
  }

  Json rope_scaling(const Json& config) const {
    if (file_.find(kRopeFactors) != nullptr) return llama3_scaling(config);
    const auto factor = real("rope.scaling.factor");
    const std::string type =
        file_.text(key("rope.scaling.type")).value_or(factor.value_or(1) == 1 ? "none" : "linear");
    if (type == "none") return nullptr;
    if (type != "linear") {
      file_.fail(
          fmt::format("'{}' is \"{}\", and linear is supported", key("rope.scaling.type"), type));
    }
    return {{"rope_type", "linear"}, {"factor", factor.value_or(1)}};
  }

  /// The file has by how much each pair is slowed. That is Llama 3's rule for some factor, or not
  /// supported.
  Json llama3_scaling(const Json& config) const {
    const GgufTensor& tensor = *file_.find(kRopeFactors);
    std::vector<float> factors(static_cast<size_t>(tensor.num_values()));
    codec::dequantize(tensor.type, tensor.bytes, factors);
    const auto head_dim = config["head_dim"].get<int64_t>();
    const double theta = config["rope_theta"].get<double>();
    constexpr double kLow = 1;
    constexpr double kHigh = 4;
    constexpr double kOriginal = 8192;
    const double factor = factors.empty() ? 0 : *std::ranges::max_element(factors);
    bool is_llama3 = std::ssize(factors) == head_dim / 2 && factor >= 1;
    for (size_t i = 0; is_llama3 && i < factors.size(); ++i) {
      const double wave =
          2 * std::numbers::pi *
          std::pow(theta, 2 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double blend = std::clamp((kOriginal / wave - kLow) / (kHigh - kLow), 0.0, 1.0);
      const double expected = 1 / ((1 - blend) / factor + blend);
      is_llama3 = std::abs(factors[i] / expected - 1) < 1e-4;
    }
    if (!is_llama3) file_.fail(fmt::format("'{}' are not Llama 3's factors", kRopeFactors));
    return {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", kLow},
            {"high_freq_factor", kHigh},
            {"original_max_position_embeddings", static_cast<int64_t>(kOriginal)}};
  }

  void add_ids(Json& config) const {
    const auto id_of = [&](const char* what) {
      return file_.whole(fmt::format("tokenizer.ggml.{}_token_id", what));
    };
    if (const auto id = id_of("bos")) config["bos_token_id"] = *id;
    if (const auto id = id_of("padding")) config["pad_token_id"] = *id;
    std::vector<int64_t> ends;  // Of a text, a turn, a message.
    for (const char* what : {"eos", "eot", "eom"}) {
      const auto id = id_of(what);
      if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
    }
    if (ends.size() == 1) config["eos_token_id"] = ends[0];
    if (ends.size() > 1) config["eos_token_id"] = ends;
  }

  const GgufFile& file_;
  const Architecture& architecture_;
};

/// As the format names the tensor, without ".weight" or ".bias".
std::string stem_of(const ParameterSpec& spec) {
  const auto has = [&](std::string_view part) { return spec.name.find(part) != std::string::npos; };
  switch (spec.role) {
    case Role::kEmbedding:
      return "token_embd";
    case Role::kPositions:
      return "position_embd";
    case Role::kAttentionNorm:
      return "attn_norm";
    case Role::kAttentionNormBehind:
      return "post_attention_norm";
    case Role::kQueryKeyValue:
      return has("q_proj")   ? "attn_q"
             : has("k_proj") ? "attn_k"
             : has("v_proj") ? "attn_v"
                             : "attn_qkv";
    case Role::kQueryNorm:
      return "attn_q_norm";
    case Role::kKeyNorm:
      return "attn_k_norm";
    case Role::kAttentionOutput:
      return "attn_output";
    case Role::kMlpNorm:
      return "ffn_norm";
    case Role::kMlpNormBehind:
      return "post_ffw_norm";
    case Role::kMlpInput:
      return has("gate_proj") ? "ffn_gate" : "ffn_up";
    case Role::kMlpOutput:
      return "ffn_down";
    case Role::kFinalNorm:
      return "output_norm";
    case Role::kHead:
      return "output";
  }
  return "";
}

std::string name_of(const ParameterSpec& spec) {
  const std::string layer = spec.layer >= 0 ? fmt::format("blk.{}.", spec.layer) : "";
  return layer + stem_of(spec) + (spec.is_bias() ? ".bias" : ".weight");
}

/// Rows of queries and keys where neighbours turn together.
void pair_rows(const ParameterSpec& spec, const ModelConfig& config, StoredTensor& tensor) {
  const bool is_query = spec.name.find("q_proj") != std::string::npos;
  if (!is_query && spec.name.find("k_proj") == std::string::npos) return;
  tensor.num_rows = spec.shape[0];  // Of a bias too.
  tensor.width = spec.size / tensor.num_rows;
  tensor.paired_rows = tensor.num_rows / (is_query ? config.num_heads : config.num_kv_heads);
}

}  // namespace

std::string hf_config_of_gguf(const GgufFile& file) {
  return Settings(file).config().dump(2) + "\n";
}

std::vector<StoredTensor> tensors_of_gguf(const GgufFile& file, const ModelConfig& config) {
  const Architecture& architecture = architecture_of(file);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::map<std::string, size_t> wanted;
  for (size_t i = 0; i < specs.size(); ++i) wanted.emplace(name_of(specs[i]), i);
  std::vector<StoredTensor> found(specs.size());
  for (const GgufTensor& tensor : file.tensors()) {
    const auto place = wanted.find(tensor.name);
    if (place == wanted.end()) {
      if (tensor.name == kRopeFactors) continue;
      file.fail(
          fmt::format("tensor '{}' is not part of the model that its settings describe, or "
                      "appears twice",
                      tensor.name));
    }
    const ParameterSpec& spec = specs[place->second];
    if (tensor.shape != spec.shape) {
      file.fail(fmt::format("tensor '{}' has shape [{}], and its settings ask for [{}]",
                            tensor.name, fmt::join(tensor.shape, ", "),
                            fmt::join(spec.shape, ", ")));
    }
    StoredTensor& stored = found[place->second] =
        stored_tensor(tensor.type, tensor.bytes, spec.shape);
    if (architecture.turns_neighbours) pair_rows(spec, config, stored);
    if (stored.width % static_cast<int64_t>(codec::ggml_block(stored.type).num_values) != 0) {
      file.fail(fmt::format("tensor '{}' is of type {}, which a bias cannot be", tensor.name,
                            codec::ggml_block(stored.type).name));
    }
    wanted.erase(place);
  }
  if (!wanted.empty()) {
    file.fail(
        fmt::format("tensor '{}' is missing ({} in all)", wanted.begin()->first, wanted.size()));
  }
  return found;
}

}  // namespace atl::weights
