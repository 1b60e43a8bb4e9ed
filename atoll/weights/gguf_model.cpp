#include "atoll/weights/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_layout.h"
#include "atoll/weights/hf_config.h"

namespace atl::weights {
namespace {

using codec::GgufFile;
using codec::GgufTensor;

const GgufArchitecture& architecture_of(const GgufFile& file) {
  const std::string name = file.text("general.architecture").value_or("");
  const auto* const found = std::ranges::find(kGgufArchitectures, name, &GgufArchitecture::name);
  if (found != kGgufArchitectures.end()) return *found;
  std::string known;
  for (const GgufArchitecture& one : kGgufArchitectures)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  file.fail(fmt::format("the architecture \"{}\" is not supported; {} are", name, known));
}

/// Whether the file has no head, or its embedding a second time.
bool is_tied(const GgufFile& file) {
  const GgufTensor* const head = file.find("output.weight");
  const GgufTensor* const embedding = file.find("token_embd.weight");
  return head == nullptr ||
         (embedding != nullptr && head->type == embedding->type &&
          head->shape == embedding->shape && std::ranges::equal(head->bytes, embedding->bytes));
}

class Settings {
 public:
  explicit Settings(const GgufFile& file)
      : file_(file), architecture_(architecture_of(file)), family_(*find_family(family_name())) {}

  ModelConfig config() const {
    ModelConfig config;
    config.architecture = family_.name;
    config.vocab_size = vocab_size();
    config.hidden_size = count("embedding_length");
    config.intermediate_size = count("feed_forward_length");
    config.num_layers = count("block_count");
    config.num_heads = count("attention.head_count");
    config.num_kv_heads = whole("attention.head_count_kv").value_or(config.num_heads);
    config.head_dim = whole("attention.key_length").value_or(config.hidden_size / config.num_heads);
    config.max_positions = count("context_length");
    config.norm_eps = real(gguf_norm_key(family_)).value_or(1e-5);
    config.tie_embeddings = is_tied(file_);
    if (family_.turns()) read_turning(config);
    read_parts(config);
    config = canonical(config);
    try {
      check(config);
    } catch (const UsageError& error) {
      file_.fail(error.what());
    }
    return config;
  }

  SpecialIds ids() const {
    const auto id_of = [&](const char* what) {
      return file_.whole(fmt::format("tokenizer.ggml.{}_token_id", what));
    };
    SpecialIds ids{.begin_of_text = id_of("bos"), .padding = id_of("padding")};
    for (const char* what : {"eos", "eot", "eom"}) {  // Of a text, a turn, a message.
      const auto id = id_of(what);
      if (id && std::ranges::find(ids.ends, *id) == ids.ends.end()) ids.ends.push_back(*id);
    }
    return ids;
  }

 private:
  std::string key(const char* name) const { return fmt::format("{}.{}", architecture_.name, name); }
  std::optional<int64_t> whole(const char* name) const { return file_.whole(key(name)); }
  /// Rounded to what a decimal of few digits means: files hold singles.
  std::optional<double> real(const char* name) const {
    const auto value = file_.real(key(name));
    if (!value) return {};
    if (!std::isfinite(*value)) file_.fail(fmt::format("'{}' is no number", key(name)));
    return as_single(*value);
  }
  int64_t count(const char* name) const {
    const auto value = whole(name);
    if (!value || *value <= 0)
      file_.fail(fmt::format("'{}' is missing or not positive", key(name)));
    return *value;
  }

  std::string_view family_name() const {
    if (architecture_.name != "llama") return architecture_.family;
    if (whole("expert_count").value_or(0) > 0) return "mixtral";
    return whole("attention.sliding_window") ? "mistral" : "llama";
  }

  int64_t vocab_size() const {
    const GgufTensor* const embedding = file_.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      file_.fail("there is no matrix 'token_embd.weight'");
    }
    return embedding->shape[0];
  }

  /// What not all architectures have.
  void read_parts(ModelConfig& config) const {
    const auto has = [&](const char* tensor) { return file_.find(tensor) != nullptr; };
    if (family_.has("attention_bias")) {
      config.attention_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    }
    if (family_.has("mlp_bias")) config.mlp_bias = has("blk.0.ffn_up.bias");
    if (family_.has("parallel_residual")) {
      config.parallel_residual = file_.flag(key("use_parallel_residual")).value_or(true);
    }
    for_each_gguf_real(
        architecture_, family_, config,
        [&](const char* name, double& value, double usual) { value = real(name).value_or(usual); });
    if (!architecture_.says_score_scale && family_.has("attention_multiplier")) {
      config.attention_multiplier = gguf_score_scale(config, architecture_);
    }
    if (family_.has("num_experts")) {
      config.num_experts = count("expert_count");
      config.experts_per_token = count("expert_used_count");
      config.router_normalises = architecture_.router_normalises;
      config.intermediate_size =
          whole("expert_feed_forward_length").value_or(config.intermediate_size);
    }
    config.activation =
        file_.text(key(kGgufActivation)).value_or(std::string(architecture_.activation));
    if (const auto window = whole("attention.sliding_window")) {
      if (!family_.has("sliding_window") || family_.has("full_layers")) {
        file_.fail("windows are not supported in this architecture");
      }
      config.sliding_window = *window;
    }
    if (family_.has("layer_pattern")) {
      config.layer_pattern = gguf_layer_pattern(config, architecture_);
    }
    const auto values = whole("attention.value_length");
    if (values && *values != config.head_size()) {
      file_.fail("keys and values of different lengths are not supported");
    }
  }

  void read_turning(ModelConfig& config) const {
    config.rope_theta = real("rope.freq_base").value_or(10'000);
    const int64_t size = config.head_size();
    const int64_t turning = whole("rope.dimension_count").value_or(size);
    if (turning != size &&
        (!family_.has("partial_rotary_factor") || turning < 0 || turning > size)) {
      file_.fail(fmt::format("only {} of a head's {} elements turn, which '{}' has not", turning,
                             size, family_.name));
    }
    config.partial_rotary_factor = static_cast<double>(turning) / static_cast<double>(size);
    if (file_.find(kGgufRopeFactors) != nullptr) return read_llama3(config);
    const auto factor = real("rope.scaling.factor");
    const std::string type =
        file_.text(key("rope.scaling.type")).value_or(factor.value_or(1) == 1 ? "none" : "linear");
    if (type == "none") return;
    if (type != "linear") {
      file_.fail(
          fmt::format("'{}' is \"{}\", and linear is supported", key("rope.scaling.type"), type));
    }
    config.rope_type = "linear";
    config.rope_factor = factor.value_or(1);
  }

  /// The file has by how much each pair is slowed. That is Llama 3's rule for some factor, or not
  /// supported.
  void read_llama3(ModelConfig& config) const {
    const GgufTensor& tensor = *file_.find(kGgufRopeFactors);
    std::vector<float> factors(static_cast<size_t>(tensor.num_values()));
    codec::dequantize(tensor.type, tensor.bytes, factors);
    config.rope_type = "llama3";
    config.rope_factor = factors.empty() ? 0 : as_single(*std::ranges::max_element(factors));
    config.rope_low_freq_factor = 1;
    config.rope_high_freq_factor = 4;
    config.rope_original_positions = whole("rope.scaling.original_context_length").value_or(8192);
    bool is_llama3 = std::ssize(factors) == config.rotary_size() / 2 && config.rope_factor >= 1;
    const std::vector<double> expected = is_llama3 ? llama3_factors(config) : std::vector<double>();
    for (size_t i = 0; is_llama3 && i < factors.size(); ++i) {
      is_llama3 = std::abs(factors[i] / expected[i] - 1) < 1e-4;
    }
    if (!is_llama3) file_.fail(fmt::format("'{}' are not Llama 3's factors", kGgufRopeFactors));
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  const Family& family_;
};

StoredTensor stored(const GgufTensor& tensor, const RowOrder& order, float added) {
  const int64_t num_rows = gguf_num_rows(tensor.shape, order);
  return {.type = tensor.type,
          .bytes = tensor.bytes,
          .num_rows = num_rows,
          .width = static_cast<int64_t>(tensor.num_values()) / num_rows,
          .order = order,
          .added = -added};
}

}  // namespace

std::string hf_config_of_gguf(const GgufFile& file) {
  const Settings settings(file);
  return to_hf_config(settings.config(), settings.ids());
}

std::vector<StoredTensor> tensors_of_gguf(const GgufFile& file, const ModelConfig& config) {
  const GgufArchitecture& architecture = architecture_of(file);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::map<std::string, std::vector<size_t>> wanted;
  for (size_t i = 0; i < specs.size(); ++i) wanted[gguf_name_of(specs[i])].push_back(i);
  std::vector<StoredTensor> found(specs.size());
  for (const GgufTensor& tensor : file.tensors()) {
    const auto place = wanted.find(tensor.name);
    if (place == wanted.end()) {
      if (tensor.name == kGgufRopeFactors) continue;
      if (tensor.name == "output.weight" && config.tie_embeddings) continue;  // See is_tied().
      file.fail(
          fmt::format("tensor '{}' is not part of the model that its settings describe, or "
                      "appears twice",
                      tensor.name));
    }
    const std::vector<size_t>& indices = place->second;
    const ParameterSpec& spec = specs[indices.front()];
    std::vector<int64_t> shape = gguf_shape_of(spec);
    if (spec.expert >= 0) shape.insert(shape.begin(), std::ssize(indices));
    if (tensor.shape != shape) {
      file.fail(fmt::format("tensor '{}' has shape [{}], and its settings ask for [{}]",
                            tensor.name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
    }
    const StoredTensor whole =
        stored(tensor, gguf_order_of(spec, config, architecture), gguf_added(spec, config));
    if (whole.width % static_cast<int64_t>(codec::ggml_block(whole.type).num_values) != 0) {
      file.fail(fmt::format("tensor '{}' is of type {}, which a bias cannot be", tensor.name,
                            codec::ggml_block(whole.type).name));
    }
    for (size_t i = 0; i < indices.size(); ++i) {
      found[indices[i]] = whole.part(static_cast<int64_t>(i), std::ssize(indices));
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
