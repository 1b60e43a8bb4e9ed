#include "atoll/model/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"

namespace atl::model {
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

/// transformers 5 writes rope_parameters, version 4 rope_theta and rope_scaling: we read both.
double read_rope_theta(const Reader& reader) {
  double theta = reader.real("rope_theta", 10'000);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* rope = reader.find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object()) reader.fail(fmt::format("'{}' must be an object", key));
    for (const auto& [name, value] : rope->items()) {
      const bool type = name == "rope_type" || name == "type";
      if (type && value == "default") continue;
      if (name == "rope_theta" && value.is_number()) {
        theta = value.get<double>();
      } else if (name == "partial_rotary_factor" && value == 1.0) {
        continue;
      } else {
        reader.fail(
            fmt::format("'{}' has {} {}, and only the default rotary positions are "
                        "supported",
                        key, name, value.dump()));
      }
    }
  }
  return theta;
}

void refuse_other_mathematics(const Reader& reader) {
  reader.require("hidden_act", "silu");
  reader.require("attention_bias", false);
  reader.require("mlp_bias", false);
  reader.require("use_sliding_window", false);
  reader.require("partial_rotary_factor", 1.0);
  if (reader.find("quantization_config") != nullptr) {
    reader.fail("'quantization_config' is set, and only FP32, BF16 and FP16 weights are supported");
  }
  const Json* layers = reader.find("layer_types");
  if (layers == nullptr) return;
  if (!layers->is_array()) reader.fail("'layer_types' must be a list");
  for (const Json& type : *layers) {
    if (type != "full_attention") {
      reader.fail(fmt::format("'layer_types' has {}, and only \"full_attention\" is supported",
                              type.dump()));
    }
  }
}

/// An id, or the first of a list of ids (Llama 3 has several ends of text).
std::optional<int64_t> read_id(const Reader& reader, const char* key) {
  const Json* value = reader.find(key);
  if (value == nullptr) return std::nullopt;
  const Json& id = value->is_array() && !value->empty() ? value->front() : *value;
  if (!id.is_number_integer()) reader.fail(fmt::format("'{}' must be a token id", key));
  return id.get<int64_t>();
}

ModelConfig read_sizes(const Reader& reader, bool qk_norm) {
  ModelConfig config;
  config.qk_norm = qk_norm;
  config.vocab_size = reader.integer("vocab_size");
  config.hidden_size = reader.integer("hidden_size");
  config.intermediate_size = reader.integer("intermediate_size");
  config.num_layers = reader.integer("num_hidden_layers");
  config.num_heads = reader.integer("num_attention_heads");
  config.num_kv_heads = reader.integer("num_key_value_heads", config.num_heads);
  config.head_dim = reader.integer("head_dim", qk_norm ? 128 : 0);  // transformers' default.
  config.max_positions = reader.integer("max_position_embeddings");
  config.norm_eps = reader.real("rms_norm_eps", 1e-6);
  config.tie_embeddings = reader.flag("tie_word_embeddings", false);
  config.rope_theta = read_rope_theta(reader);
  return config;
}

}  // namespace

std::string to_hf_config(const ModelConfig& config, const SpecialIds& ids) {
  nlohmann::ordered_json json;
  json["architectures"] = {config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
  json["model_type"] = config.qk_norm ? "qwen3" : "llama";
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_layers;
  json["num_attention_heads"] = config.num_heads;
  json["num_key_value_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_size();
  json["max_position_embeddings"] = config.max_positions;
  json["rms_norm_eps"] = config.norm_eps;
  json["rope_theta"] = config.rope_theta;  // transformers 4
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config.rope_theta}};  // 5
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  if (config.qk_norm) {
    json["use_sliding_window"] = false;
  } else {
    json["mlp_bias"] = false;
  }
  json["initializer_range"] = 0.02;
  json["use_cache"] = true;
  json["torch_dtype"] = "float32";  // transformers 4
  json["dtype"] = "float32";        // 5
  const auto id = [](const std::optional<int64_t>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  json["bos_token_id"] = id(ids.begin_of_text);
  json["eos_token_id"] = id(ids.end_of_text);
  return json.dump(2) + "\n";
}

std::string to_generation_config(const SpecialIds& ids) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (ids.begin_of_text) json["bos_token_id"] = *ids.begin_of_text;
  if (ids.end_of_text) json["eos_token_id"] = *ids.end_of_text;
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
  const std::string family = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  if (family != "llama" && family != "qwen3") {
    reader.fail(fmt::format("'model_type' is {}, and only \"llama\" and \"qwen3\" are supported",
                            type == nullptr ? "missing" : type->dump()));
  }
  refuse_other_mathematics(reader);
  HfConfig result;
  result.config = read_sizes(reader, family == "qwen3");
  result.ids = {read_id(reader, "bos_token_id"), read_id(reader, "eos_token_id")};
  try {
    check(result.config);
  } catch (const UsageError& error) {
    reader.fail(error.what());
  }
  return result;
}

}  // namespace atl::model
