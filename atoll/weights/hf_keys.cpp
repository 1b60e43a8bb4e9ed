#include "atoll/weights/hf_keys.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

const Json kNoRope = Json::object();

/// One entry of rope_scaling or rope_parameters, which stands under `key`.
void read_rope_entry(const HfReader& reader, const char* key, const Json& rope,
                     const std::string& name, ModelConfig& config) {
  const Json& value = rope.at(name);
  const auto refuse = [&] {
    reader.fail(
        fmt::format("'{}' has {} {}, which is not supported: rotary positions are of rope_type "
                    "default, linear, dynamic or llama3",
                    key, name, value.dump()));
  };
  const auto number = [&]() -> double {
    if (!value.is_number()) refuse();
    return value.get<double>();
  };
  if (name == "rope_type" || name == "type") {
    const std::string type = value.is_string() ? value.get<std::string>() : "";
    if (type != "default" && type != "linear" && type != "dynamic" && type != "llama3") refuse();
    if (name == "rope_type" || !rope.contains("rope_type")) config.rope_type = type;
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

/// transformers 5 writes rope_parameters, version 4 rope_theta and rope_scaling. Where a config has
/// several, the same one counts as in transformers 5.
void read_rope(const HfReader& reader, ModelConfig& config) {
  const char* key = "rope_scaling";
  const Json* rope = reader.find(key);
  if (rope == nullptr || rope->empty()) rope = reader.find(key = "rope_parameters");
  if (rope == nullptr) rope = &kNoRope;
  if (!rope->is_object()) reader.fail(fmt::format("'{}' must be an object", key));
  for (const auto& [name, value] : rope->items()) {
    read_rope_entry(reader, key, *rope, name, config);
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

OrderedJson rope_json(const ModelConfig& config) {
  OrderedJson rope{{"rope_type", config.rope_type}, {"rope_theta", config.rope_theta}};
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

}  // namespace

void HfReader::fail(const std::string& message) const {
  throw InputError(fmt::format("'{}': {}", file_, message));
}

const Json* HfReader::find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

int64_t HfReader::integer(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(fmt::format("'{}' is missing", key));
  if (!value->is_number_integer()) {
    fail(fmt::format("'{}' must be a whole number, not {}", key, value->dump()));
  }
  return value->get<int64_t>();
}

int64_t HfReader::integer(const char* key, int64_t usual) const {
  return find(key) == nullptr ? usual : integer(key);
}

std::optional<int64_t> HfReader::integer_or_null(const char* key, int64_t usual) const {
  if (!json_.contains(key)) return usual;
  return find(key) == nullptr ? std::nullopt : std::optional(integer(key));
}

std::string HfReader::text(const char* key, const std::string& usual) const {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_string()) fail(fmt::format("'{}' must be text, not {}", key, value->dump()));
  return value->get<std::string>();
}

double HfReader::real(const char* key, double usual) const {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_number()) fail(fmt::format("'{}' must be a number, not {}", key, value->dump()));
  return value->get<double>();
}

bool HfReader::flag(const char* key, bool usual) const {
  const Json* value = find(key);
  if (value == nullptr) return usual;
  if (!value->is_boolean()) {
    fail(fmt::format("'{}' must be true or false, not {}", key, value->dump()));
  }
  return value->get<bool>();
}

void HfReader::require(const char* key, const Json& expected) const {
  const Json* value = find(key);
  if (value == nullptr || *value == expected) return;
  fail(fmt::format("'{}' is {}, and only {} is supported", key, value->dump(), expected.dump()));
}

template <typename T, typename Read>
void HfKeys::field(const char* key, T& value, const Read& read) {
  if (writes()) {
    (*out_)[key] = value;
  } else {
    value = read();
  }
}

void HfKeys::integer(const char* key, int64_t& value) {
  field(key, value, [&] { return reader_->integer(key); });
}

void HfKeys::integer(const char* key, int64_t& value, int64_t usual) {
  integer(key, value, usual, usual);
}

void HfKeys::integer(const char* key, int64_t& value, int64_t usual, int64_t none) {
  field(key, value, [&] { return reader_->integer_or_null(key, usual).value_or(none); });
}

void HfKeys::real(const char* key, double& value, double usual) {
  field(key, value, [&] { return reader_->real(key, usual); });
}

void HfKeys::flag(const char* key, bool& value, bool usual) {
  field(key, value, [&] { return reader_->flag(key, usual); });
}

template <typename T>
void HfKeys::only(const char* key, T value) {
  if (writes()) {
    (*out_)[key] = value;
  } else {
    reader_->require(key, value);
  }
}
template void HfKeys::only(const char* key, bool value);
template void HfKeys::only(const char* key, const char* value);

void HfKeys::no_dropout(const char* key) {
  if (writes()) {
    (*out_)[key] = 0.0;
  } else if (reader_->real(key, 0) != 0) {
    reader_->fail(fmt::format("'{}' is not 0, and dropout is not supported", key));
  }
}

void HfKeys::ignored_dropout(const char* key) {
  if (writes()) (*out_)[key] = 0.0;
}

void HfKeys::activation(const char* key, std::string& value, const char* usual,
                        const char* tanh_name) {
  if (writes()) {
    (*out_)[key] = value == "gelu" ? "gelu" : tanh_name;
    return;
  }
  const std::string name = reader_->text(key, usual);
  if (name == "gelu") {
    value = "gelu";
  } else if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    value = "gelu_tanh";
  } else {
    reader_->fail(fmt::format(
        "'{}' is \"{}\", and only gelu, gelu_new, gelu_fast and gelu_pytorch_tanh are supported",
        key, name));
  }
}

void HfKeys::rotary(ModelConfig& config, const Rotary& names) {
  if (!writes()) {
    config.rope_theta = reader_->real(names.base, 10'000);
    config.partial_rotary_factor = reader_->real(names.share, names.usual_share);
    read_rope(*reader_, config);
    return;
  }
  OrderedJson rope = rope_json(config);
  (*out_)["rope_parameters"] = rope;  // transformers 5; what follows is 4's.
  if (names.writes_share) (*out_)[names.share] = config.partial_rotary_factor;
  (*out_)[names.base] = config.rope_theta;
  if (config.rope_type == "default") return;
  rope.erase("rope_theta");
  (*out_)["rope_scaling"] = std::move(rope);
}

}  // namespace atl::weights
