#include "atoll/weights/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

using Json = nlohmann::json;

/// Typed access to one config.json; every failure names the file and the key.
class Reader {
 public:
  Reader(const Json& json, const std::string& name) : json_(json), name_(name) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(fmt::format("'{}': {}", name_, message));
  }
  /// Null when the key is absent or null: transformers writes null for "not used".
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  int64_t integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) fail(fmt::format("'{}' is missing", key));
    if (!value->is_number_integer()) {
      fail(fmt::format("'{}' must be a whole number, not {}", key, value->dump()));
    }
    return value->get<int64_t>();
  }
  int64_t integer(const char* key, int64_t fallback) const {
    return find(key) == nullptr ? fallback : integer(key);
  }
  /// `fallback` where the key is absent; nothing where it is null.
  std::optional<int64_t> integer_or_null(const char* key, int64_t fallback) const {
    if (!json_.contains(key)) return fallback;
    return find(key) == nullptr ? std::nullopt : std::optional(integer(key));
  }
  std::string text(const char* key, const std::string& fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) fail(fmt::format("'{}' must be text, not {}", key, value->dump()));
    return value->get<std::string>();
  }
  double real(const char* key, double fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) {
      fail(fmt::format("'{}' must be a number, not {}", key, value->dump()));
    }
    return value->get<double>();
  }
  bool flag(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      fail(fmt::format("'{}' must be true or false, not {}", key, value->dump()));
    }
    return value->get<bool>();
  }
  /// Refuses a value other than `expected` (or absent).
  void require(const char* key, const Json& expected) const {
    const Json* value = find(key);
    if (value != nullptr && *value != expected) {
      fail(
          fmt::format("'{}' is {}, and only {} is supported", key, value->dump(), expected.dump()));
    }
  }

 private:
  const Json& json_;
  const std::string& name_;
};

const Json kNoRope = Json::object();

/// transformers 5 writes rope_parameters, version 4 rope_theta and rope_scaling. Where a config has
/// several, the same one counts as in transformers 5.
void read_rope(const Reader& reader, const Family& family, ModelConfig& config) {
  const bool is_neox = family.name == "gpt_neox";
  config.rope_theta = reader.real(is_neox ? "rotary_emb_base" : "rope_theta", 10'000);
  config.partial_rotary_factor =
      is_neox ? reader.real("rotary_pct", 0.25) : reader.real("partial_rotary_factor", 1);
  const char* key = "rope_scaling";
  const Json* rope = reader.find(key);
  if (rope == nullptr || rope->empty()) rope = reader.find(key = "rope_parameters");
  if (rope == nullptr) rope = &kNoRope;
  if (!rope->is_object()) reader.fail(fmt::format("'{}' must be an object", key));
  for (const auto& [name, value] : rope->items()) {
    const auto refuse = [&] {
      reader.fail(fmt::format(
          "'{}' has {} {}, which is not supported: rotary positions are of rope_type default, "
          "linear, dynamic or llama3",
          key, name, value.dump()));
    };
    const auto number = [&]() -> double {
      if (!value.is_number()) refuse();
      return value.get<double>();
    };
    if (name == "rope_type" || name == "type") {
      const std::string type = value.is_string() ? value.get<std::string>() : "";
      if (type != "default" && type != "linear" && type != "dynamic" && type != "llama3") refuse();
      if (name == "rope_type" || !rope->contains("rope_type")) config.rope_type = type;
    } else if (name == "rope_theta") {
      config.rope_theta = number();
    } else if (name == "factor") {
      config.rope_factor = number();
    } else if (name == "low_freq_factor") {
      config.rope_low_freq_factor = number();
    } else if (name == "high_freq_factor") {
      config.rope_high_freq_factor = number();
    } else if (name == "original_max_position_embeddings") {
      if (!value.is_number_integer()) refuse();
      config.rope_original_positions = value.get<int64_t>();
    } else if (name == "partial_rotary_factor") {
      config.partial_rotary_factor = number();
    } else {
      refuse();
    }
  }
  const auto require_key = [&](const char* name) {
    if (rope->contains(name)) return;
    reader.fail(fmt::format("'{}' is of rope_type {}, and its '{}' is missing", key,
                            config.rope_type, name));
  };
  if (config.rope_type != "default") require_key("factor");
  if (config.rope_type == "llama3") {
    require_key("low_freq_factor");
    require_key("high_freq_factor");
  }
  if (config.rope_original_positions == 0) config.rope_original_positions = config.max_positions;
  config.rope_original_positions =
      reader.integer("original_max_position_embeddings", config.rope_original_positions);
}

/// Layers with a window come behind those without.
void read_windows(const Reader& reader, const Family& family, ModelConfig& config) {
  if (family.name == "mistral") {
    config.sliding_window = reader.integer_or_null("sliding_window", 4096).value_or(0);
  } else if (reader.flag("use_sliding_window", false)) {
    if (!family.has("sliding_window")) {
      reader.fail(fmt::format("'use_sliding_window' is set, and '{}' has no windows", family.name));
    }
    config.sliding_window = reader.integer_or_null("sliding_window", 4096).value_or(0);
    config.full_layers =
        std::clamp<int64_t>(reader.integer("max_window_layers", 28), 0, config.num_layers);
  }
  const Json* layers = reader.find("layer_types");
  if (layers == nullptr) return;
  if (!layers->is_array() || std::ssize(*layers) != config.num_layers) {
    reader.fail(fmt::format("'layer_types' must be a list of {} types (num_hidden_layers)",
                            config.num_layers));
  }
  int64_t num_full = 0;
  while (num_full < config.num_layers &&
         (*layers)[static_cast<size_t>(num_full)] == "full_attention") {
    num_full += 1;
  }
  for (const Json& type : *layers) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader.fail(
          fmt::format("'layer_types' has {}, and only \"full_attention\" and "
                      "\"sliding_attention\" are supported",
                      type.dump()));
    }
  }
  const auto num_sliding = std::count(layers->begin(), layers->end(), Json("sliding_attention"));
  if (num_full + num_sliding != config.num_layers) {
    reader.fail(
        "'layer_types' has \"full_attention\" behind \"sliding_attention\", which is not "
        "supported: windows are in the last layers");
  }
  if (num_sliding > 0 && config.sliding_window == 0) {
    reader.fail("'layer_types' has \"sliding_attention\", but no sliding_window is in use");
  }
  config.full_layers = num_full;
}

std::string read_activation(const Reader& reader) {
  const std::string name = reader.text("hidden_act", "gelu");
  if (name == "gelu") return "gelu";
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  reader.fail(
      fmt::format("'hidden_act' is \"{}\", and only gelu, gelu_new, gelu_fast and "
                  "gelu_pytorch_tanh are supported",
                  name));
}

void refuse_other_mathematics(const Reader& reader, const Family& family) {
  if (family.name != "gpt_neox") reader.require("hidden_act", "silu");
  reader.require("is_causal", true);
  for (const char* key : {"attention_dropout", "hidden_dropout"}) {
    if (reader.real(key, 0) != 0) {
      reader.fail(fmt::format("'{}' is not 0, and dropout is not supported", key));
    }
  }
  if (reader.find("quantization_config") != nullptr) {
    reader.fail("'quantization_config' is set, and only FP32, BF16 and FP16 weights are supported");
  }
  const Json* classes = reader.find("architectures");
  if (classes != nullptr && classes->is_array() && !classes->empty() &&
      std::ranges::count(*classes, Json(family.hf_class)) == 0) {
    reader.fail(fmt::format("'architectures' is {}, and of '{}' only {} is supported",
                            classes->dump(), family.name, family.hf_class));
  }
}

/// An id or a list of ids (Llama 3 has several ends of text).
std::vector<int64_t> read_ids(const Reader& reader, const char* key) {
  const Json* value = reader.find(key);
  if (value == nullptr) return {};
  std::vector<int64_t> ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!id.is_number_integer()) reader.fail(fmt::format("'{}' must be a token id", key));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::optional<int64_t> read_id(const Reader& reader, const char* key) {
  const std::vector<int64_t> ids = read_ids(reader, key);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

ModelConfig read_config(const Reader& reader, const Family& family) {
  ModelConfig config;
  config.architecture = family.name;
  const bool is_neox = family.name == "gpt_neox";
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.intermediate_size = reader.integer("intermediate_size");
  config.num_layers = reader.integer("num_hidden_layers");
  config.num_heads = reader.integer("num_attention_heads");
  config.num_kv_heads = config.num_heads;
  if (!is_neox) {
    const int64_t usual = family.usual_kv_heads > 0 ? family.usual_kv_heads : config.num_heads;
    config.num_kv_heads =
        reader.integer_or_null("num_key_value_heads", usual).value_or(config.num_heads);
  }
  if (family.has("head_dim")) {
    config.head_dim = reader.integer("head_dim", family.usual_head_dim);
  } else if (config.num_heads > 0) {
    reader.require("head_dim", config.hidden_size / config.num_heads);
  }
  config.max_positions = reader.integer("max_position_embeddings");
  config.norm_eps = reader.real(is_neox ? "layer_norm_eps" : "rms_norm_eps", family.usual_norm_eps);
  config.tie_embeddings = reader.flag("tie_word_embeddings", false);
  if (family.has("attention_bias")) config.attention_bias = reader.flag("attention_bias", is_neox);
  if (family.has("mlp_bias")) config.mlp_bias = reader.flag("mlp_bias", false);
  if (is_neox) {
    config.activation = read_activation(reader);
    config.parallel_residual = reader.flag("use_parallel_residual", true);
  }
  read_rope(reader, family, config);
  read_windows(reader, family, config);
  return canonical(config);
}

nlohmann::ordered_json rope_json(const ModelConfig& config) {
  nlohmann::ordered_json rope{{"rope_type", config.rope_type}, {"rope_theta", config.rope_theta}};
  if (config.rope_type != "default") rope["factor"] = config.rope_factor;
  if (config.rope_type == "llama3") {
    rope["low_freq_factor"] = config.rope_low_freq_factor;
    rope["high_freq_factor"] = config.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = config.rope_original_positions;
  }
  if (config.partial_rotary_factor != 1) {
    rope["partial_rotary_factor"] = config.partial_rotary_factor;
  }
  return rope;
}

void put_windows(const ModelConfig& config, nlohmann::ordered_json& json) {
  const bool slides = config.sliding_window > 0;
  json["sliding_window"] =
      slides ? nlohmann::ordered_json(config.sliding_window) : nlohmann::ordered_json();
  if (config.architecture == "mistral") return;
  json["use_sliding_window"] = slides;
  json["max_window_layers"] = slides ? config.full_layers : config.num_layers;
  auto& types = json["layer_types"] = nlohmann::ordered_json::array();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    types.push_back(config.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
  }
}

void put_ids(const SpecialIds& ids, nlohmann::ordered_json& json) {
  if (ids.begin_of_text) json["bos_token_id"] = *ids.begin_of_text;
  if (ids.ends.size() == 1) json["eos_token_id"] = ids.ends.front();
  if (ids.ends.size() > 1) json["eos_token_id"] = ids.ends;
  if (ids.padding) json["pad_token_id"] = *ids.padding;
}

}  // namespace

std::string to_hf_config(const ModelConfig& config, const SpecialIds& ids, DType type) {
  const Family& family = family_of(config);
  const bool is_neox = family.name == "gpt_neox";
  nlohmann::ordered_json json;
  json["architectures"] = {family.hf_class};
  json["model_type"] = family.name;
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_layers;
  json["num_attention_heads"] = config.num_heads;
  if (!is_neox) json["num_key_value_heads"] = config.num_kv_heads;
  if (family.has("head_dim")) json["head_dim"] = config.head_size();
  json["max_position_embeddings"] = config.max_positions;
  json[is_neox ? "layer_norm_eps" : "rms_norm_eps"] = config.norm_eps;
  const auto rope = rope_json(config);
  json["rope_parameters"] = rope;  // transformers 5
  if (is_neox) {                   // 4
    json["rotary_pct"] = config.partial_rotary_factor;
    json["rotary_emb_base"] = config.rope_theta;
  } else {
    json["rope_theta"] = config.rope_theta;
  }
  if (config.rope_type != "default") {  // 4
    json["rope_scaling"] = rope;
    json["rope_scaling"].erase("rope_theta");
  }
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["hidden_act"] =
      !is_neox ? "silu" : (config.activation == "gelu" ? "gelu" : "gelu_pytorch_tanh");
  if (family.has("attention_bias")) json["attention_bias"] = config.attention_bias;
  json["attention_dropout"] = 0.0;
  if (family.has("mlp_bias")) json["mlp_bias"] = config.mlp_bias;
  if (family.has("sliding_window")) put_windows(config, json);
  if (is_neox) {
    json["hidden_dropout"] = 0.0;
    json["use_parallel_residual"] = config.parallel_residual;
  }
  json["initializer_range"] = 0.02;
  json["use_cache"] = true;
  const char* dtype =
      type == DType::kF32 ? "float32" : (type == DType::kF16 ? "float16" : "bfloat16");
  json["torch_dtype"] = dtype;  // transformers 4
  json["dtype"] = dtype;        // 5
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) json[key] = nullptr;
  put_ids(ids, json);
  return json.dump(2) + "\n";
}

std::string to_generation_config(const SpecialIds& ids) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  put_ids(ids, json);
  return json.dump(2) + "\n";
}

std::string to_tokenizer_config(const ModelConfig& config, std::string_view end_of_text) {
  const nlohmann::ordered_json json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                    {"eos_token", end_of_text},
                                    {"model_max_length", config.max_positions},
                                    {"clean_up_tokenization_spaces", false}};
  return json.dump(2) + "\n";
}

HfConfig from_hf_config(std::string_view json, const std::string& name) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= 16; };
  const Json document = Json::parse(json, shallow, /*allow_exceptions=*/false);
  if (!document.is_object()) throw InputError(fmt::format("'{}' is not a JSON object", name));
  const Reader reader(document, name);
  const Json* type = reader.find("model_type");
  const std::string name_of_family =
      type != nullptr && type->is_string() ? type->get<std::string>() : "";
  const Family* family = find_family(name_of_family);
  if (family == nullptr) {
    std::vector<std::string_view> names;
    for (const Family& known : families()) names.push_back(known.name);
    reader.fail(fmt::format("'model_type' is {}, and only {} are supported",
                            type == nullptr ? "missing" : type->dump(), fmt::join(names, ", ")));
  }
  refuse_other_mathematics(reader, *family);
  HfConfig result;
  result.config = read_config(reader, *family);
  result.ids = {read_id(reader, "bos_token_id"), read_ids(reader, "eos_token_id"),
                read_id(reader, "pad_token_id")};
  try {
    check(result.config);
  } catch (const UsageError& error) {
    reader.fail(error.what());
  }
  return result;
}

}  // namespace atl::weights
