#include "atoll/weights/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {
namespace {

using Json = nlohmann::json;

/// The window, where there is one, is in all layers.
bool has_uniform_windows(const Family& family) {
  return family.has("sliding_window") && !family.has("full_layers") && !family.has("layer_pattern");
}

/// The kind of each layer, as ModelConfig::layer_pattern has it; empty where the file does not say.
std::string layer_kinds(const HfReader& reader, const ModelConfig& config) {
  const Json* layers = reader.find("layer_types");
  if (layers == nullptr) return "";
  if (!layers->is_array() || std::ssize(*layers) != config.num_layers) {
    reader.fail(fmt::format("'layer_types' must be a list of {} types (num_hidden_layers)",
                            config.num_layers));
  }
  std::string kinds;
  for (const Json& type : *layers) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader.fail(
          fmt::format("'layer_types' has {}, and only \"full_attention\" and "
                      "\"sliding_attention\" are supported",
                      type.dump()));
    }
    kinds += type == "full_attention" ? 'f' : 's';
  }
  return kinds;
}

/// Layers with and without a window in any order.
void read_pattern(const HfReader& reader, const Family& family, ModelConfig& config) {
  config.sliding_window = reader.integer_or_null("sliding_window", family.usual_window).value_or(0);
  config.layer_pattern = layer_kinds(reader, config);
  if (config.layer_pattern.empty()) {
    // Files of transformers 4 may name it for this family alone.
    const bool may_say = family.has("rope_local_theta");
    config.layer_pattern =
        pattern_of('s', 'f',
                   may_say ? reader.integer("sliding_window_pattern", family.usual_interval)
                           : family.usual_interval,
                   config.num_layers);
  }
  if (config.sliding_window == 0 && config.layer_pattern.find('s') != std::string::npos) {
    reader.fail("there are layers of \"sliding_attention\", but no sliding_window is in use");
  }
}

/// Layers with a window come behind those without.
void read_windows(const HfReader& reader, const Family& family, ModelConfig& config) {
  if (family.has("layer_pattern") && family.has("sliding_window")) {
    return read_pattern(reader, family, config);
  }
  if (has_uniform_windows(family)) {
    config.sliding_window =
        reader.integer_or_null("sliding_window", family.usual_window).value_or(0);
  } else if (reader.flag("use_sliding_window", false)) {
    if (!family.has("sliding_window")) {
      reader.fail(fmt::format("'use_sliding_window' is set, and '{}' has no windows", family.name));
    }
    config.sliding_window =
        reader.integer_or_null("sliding_window", family.usual_window).value_or(0);
    config.full_layers =
        std::clamp<int64_t>(reader.integer("max_window_layers", 28), 0, config.num_layers);
  }
  const std::string kinds = layer_kinds(reader, config);
  if (kinds.empty()) return;
  const size_t num_full = std::min(kinds.find('s'), kinds.size());
  if (kinds.find('f', num_full) != std::string::npos) {
    reader.fail(
        "'layer_types' has \"full_attention\" behind \"sliding_attention\", which is not "
        "supported: windows are in the last layers");
  }
  if (num_full < kinds.size() && config.sliding_window == 0) {
    reader.fail("'layer_types' has \"sliding_attention\", but no sliding_window is in use");
  }
  config.full_layers = static_cast<int64_t>(num_full);
}

void refuse_other_mathematics(const HfReader& reader, const Family& family) {
  reader.require("is_causal", true);
  const Json* quantised = reader.find("quantization_config");
  if (quantised != nullptr &&
      (family.quantised.empty() || !quantised->is_object() ||
       quantised->value("quant_method", Json()) != std::string(family.quantised))) {
    reader.fail(
        fmt::format("'quantization_config' is set, and only FP32, BF16{} FP16 weights are "
                    "supported",
                    family.quantised.empty() ? " and" : ", MXFP4 and"));
  }
  const Json* classes = reader.find("architectures");
  if (classes != nullptr && classes->is_array() && !classes->empty() &&
      std::ranges::count(*classes, Json(family.hf_class)) == 0) {
    reader.fail(fmt::format("'architectures' is {}, and of '{}' only {} is supported",
                            classes->dump(), family.name, family.hf_class));
  }
}

/// An id or a list of ids (Llama 3 has several ends of text).
std::vector<int64_t> read_ids(const HfReader& reader, const char* key) {
  const Json* value = reader.find(key);
  if (value == nullptr) return {};
  std::vector<int64_t> ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!id.is_number_integer()) reader.fail(fmt::format("'{}' must be a token id", key));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::optional<int64_t> read_id(const HfReader& reader, const char* key) {
  const std::vector<int64_t> ids = read_ids(reader, key);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

ModelConfig read_config(const HfReader& reader, const Family& family) {
  ModelConfig config;
  config.architecture = family.name;
  config.vocab_size = reader.integer("vocab_size");
  HfKeys keys(reader);
  family.keys(keys, config);
  if (config.num_layers > kMaxLayers) {
    reader.fail(fmt::format("'num_hidden_layers' is over {}", kMaxLayers));
  }
  if (!family.has("num_kv_heads")) config.num_kv_heads = config.num_heads;
  if (!family.has("head_dim") && config.num_heads > 0) {
    reader.require("head_dim", config.hidden_size / config.num_heads);
  }
  read_windows(reader, family, config);
  return canonical(config);
}

void put_windows(const ModelConfig& config, const Family& family, nlohmann::ordered_json& json) {
  const bool slides = config.sliding_window > 0;
  // Where each layer's kind is named, transformers may want a window that none has.
  const int64_t window =
      slides || !family.has("layer_pattern") ? config.sliding_window : family.usual_window;
  json["sliding_window"] = window > 0 ? nlohmann::ordered_json(window) : nlohmann::ordered_json();
  if (has_uniform_windows(family)) return;
  if (family.has("full_layers")) {
    json["use_sliding_window"] = slides;
    json["max_window_layers"] = slides ? config.full_layers : config.num_layers;
  }
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
  nlohmann::ordered_json json;
  json["architectures"] = {family.hf_class};
  json["model_type"] = family.name;
  json["vocab_size"] = config.vocab_size;
  HfKeys keys(json);
  ModelConfig written = config;
  family.keys(keys, written);
  if (family.has("sliding_window")) put_windows(config, family, json);
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
  const HfReader reader(document, name);
  const Json* type = reader.find("model_type");
  const std::string name_of_family =
      type != nullptr && type->is_string() ? type->get<std::string>() : "";
  const Family* family = find_family(name_of_family);
  if (family == nullptr) {
    reader.fail(fmt::format("'model_type' is {}, and only {} are supported",
                            type == nullptr ? "missing" : type->dump(), family_names()));
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
