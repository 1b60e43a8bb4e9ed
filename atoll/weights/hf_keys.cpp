#include "atoll/weights/hf_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// One of rope_scaling or rope_parameters, which stands under `key`.
class RopeReader {
 public:
  RopeReader(const HfReader& reader, const char* key, const Json& rope)
      : reader_(reader), key_(key), rope_(rope) {
    if (!rope.is_object()) reader.fail(fmt::format("'{}' must be an object", key));
  }

  void read(ModelConfig& config) {
    for (const auto& [name, value] : rope_.items()) {
      if (!value.is_null()) read_entry(name, value, config);
    }
    if (config.rope_type == "longrope") {
      require_key("short_factor", config);
      require_key("long_factor", config);
    } else if (config.rope_type != "default") {
      require_key("factor", config);
    }
    if (config.rope_type == "llama3") {
      require_key("low_freq_factor", config);
      require_key("high_freq_factor", config);
    }
    if (config.rope_type == "yarn" && config.rope_attention_factor == 0 && mscale_ != 0 &&
        mscale_all_ != 0) {
      config.rope_attention_factor = growth(mscale_, config) / growth(mscale_all_, config);
    }
  }

 private:
  void read_entry(const std::string& name, const Json& value, ModelConfig& config) {
    if (name == "rope_type" || name == "type") {
      std::string type = value.is_string() ? value.get<std::string>() : "";
      if (type == "su") type = "longrope";  // As Phi-3's first files had it.
      if (!is_rope_type(type)) refuse(name, value);
      if (name == "rope_type" || !rope_.contains("rope_type")) config.rope_type = type;
    } else if (name == "original_max_position_embeddings") {
      if (!value.is_number_integer()) refuse(name, value);
      config.rope_original_positions = value.get<int64_t>();
    } else if (name == "short_factor") {
      config.rope_short_factors = factors(name, value);
    } else if (name == "long_factor") {
      config.rope_long_factors = factors(name, value);
    } else if (name == "truncate") {
      if (!value.is_boolean()) refuse(name, value);
      // transformers overlooks it where layers with a window have positions of their own.
      const bool is_heeded = !family_of(config).design.windows_are_plain;
      config.rope_whole_pairs = !is_heeded || value.get<bool>();
    } else {
      const std::pair<const char*, double*> kNumbers[] = {
          {"rope_theta", &config.rope_theta},
          {"factor", &config.rope_factor},
          {"low_freq_factor", &config.rope_low_freq_factor},
          {"high_freq_factor", &config.rope_high_freq_factor},
          {"partial_rotary_factor", &config.partial_rotary_factor},
          {"beta_fast", &config.rope_beta_fast},
          {"beta_slow", &config.rope_beta_slow},
          {"attention_factor", &config.rope_attention_factor},
          {"mscale", &mscale_},
          {"mscale_all_dim", &mscale_all_}};
      const auto* const found =
          std::ranges::find(kNumbers, name, [](const auto& entry) { return entry.first; });
      if (found == std::end(kNumbers) || !value.is_number()) refuse(name, value);
      *found->second = value.get<double>();
    }
  }

  std::string factors(const std::string& name, const Json& value) const {
    std::vector<double> factors;
    if (!value.is_array()) refuse(name, value);
    for (const Json& factor : value) {
      if (!factor.is_number()) refuse(name, factor);
      factors.push_back(factor.get<double>());
    }
    return list_of(factors);
  }

  /// Of queries and keys, with the factor of positions (Peng et al. 2023, equation 22).
  static double growth(double scale, const ModelConfig& config) {
    return config.rope_factor <= 1 ? 1 : 0.1 * scale * std::log(config.rope_factor) + 1;
  }

  void require_key(const char* name, const ModelConfig& config) const {
    if (rope_.contains(name)) return;
    reader_.fail(fmt::format("'{}' is of rope_type {}, and its '{}' is missing", key_,
                             config.rope_type, name));
  }
  [[noreturn]] void refuse(const std::string& name, const Json& value) const {
    reader_.fail(
        fmt::format("'{}' has {} {}, which is not supported: rotary positions are of rope_type {}",
                    key_, name, value.dump(), kRopeTypeNames));
  }

  const HfReader& reader_;
  const char* key_;
  const Json& rope_;
  double mscale_ = 0;
  double mscale_all_ = 0;
};

/// Of the context, where a file does not say it.
double stretch(const ModelConfig& config) {
  if (config.rope_original_positions < 1) return 1;
  return std::max(1.0, static_cast<double>(config.max_positions) /
                           static_cast<double>(config.rope_original_positions));
}

/// What holds for layers with a window, where it is another: a base, and no stretching.
void read_local_rope(const HfReader& reader, const Json& rope, ModelConfig& config) {
  ModelConfig local = config;
  local.rope_theta = config.rope_local_theta;
  RopeReader(reader, "rope_parameters", rope).read(local);
  if (local.rope_type != "default") {
    reader.fail(
        "'rope_parameters' stretches positions in layers with a window, which is not "
        "supported");
  }
  config.rope_local_theta = local.rope_theta;
}

/// transformers 5 writes rope_parameters, version 4 rope_theta and rope_scaling. Where a config has
/// several, the same one counts as in transformers 5. But a rope_theta of version 4 also holds for
/// layers with a window, as it did there: version 5 takes OLMo 3's usual base for those.
void read_rope(const HfReader& reader, bool differs_in_windows, ModelConfig& config) {
  const Json* parameters = reader.find("rope_parameters");
  const Json* scaling = reader.find("rope_scaling");
  if (scaling != nullptr && scaling->empty()) scaling = nullptr;
  if (differs_in_windows && parameters != nullptr && parameters->is_object()) {
    const auto local = parameters->find("sliding_attention");
    if (local != parameters->end() && !local->is_null()) read_local_rope(reader, *local, config);
    const auto full = parameters->find("full_attention");
    if (full != parameters->end() && !full->is_null()) {
      RopeReader(reader, "rope_parameters", *full).read(config);
    }
    parameters = nullptr;
  }
  if (scaling != nullptr) {
    RopeReader(reader, "rope_scaling", *scaling).read(config);
  } else if (parameters != nullptr) {
    RopeReader(reader, "rope_parameters", *parameters).read(config);
  }
  if (config.rope_original_positions == 0) config.rope_original_positions = config.max_positions;
  config.rope_original_positions =
      reader.integer("original_max_position_embeddings", config.rope_original_positions);
  const bool has_factor =
      (scaling != nullptr && scaling->contains("factor")) ||
      (scaling == nullptr && parameters != nullptr && parameters->contains("factor"));
  if (config.rope_type == "longrope" && !has_factor) config.rope_factor = stretch(config);
}

OrderedJson rope_json(const ModelConfig& config) {
  OrderedJson rope{{"rope_type", config.rope_type}, {"rope_theta", config.rope_theta}};
  const bool follows = config.rope_type == "longrope" && config.rope_factor == stretch(config);
  if (config.rope_type != "default" && !follows) rope["factor"] = config.rope_factor;
  if (config.rope_type == "llama3") {
    rope["low_freq_factor"] = config.rope_low_freq_factor;
    rope["high_freq_factor"] = config.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = config.rope_original_positions;
  }
  if (config.rope_type == "yarn") {
    rope["original_max_position_embeddings"] = config.rope_original_positions;
    rope["beta_fast"] = config.rope_beta_fast;
    rope["beta_slow"] = config.rope_beta_slow;
    if (!config.rope_whole_pairs) rope["truncate"] = false;
  }
  if (config.rope_type == "longrope") {
    rope["short_factor"] = numbers_of(config.rope_short_factors);
    rope["long_factor"] = numbers_of(config.rope_long_factors);
  }
  if (config.rope_attention_factor != 0) rope["attention_factor"] = config.rope_attention_factor;
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

bool HfReader::has(const char* key) const { return json_.contains(key); }

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

void HfKeys::integer_by(const char* key, const char* other_key, int64_t& value) {
  const bool is_other = !writes() && reader_->find(key) == nullptr && reader_->has(other_key);
  integer(is_other ? other_key : key, value);
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
template void HfKeys::only(const char* key, int64_t value);
template void HfKeys::only(const char* key, double value);
template void HfKeys::only(const char* key, const char* value);

void HfKeys::no_list(const char* key) {
  if (writes()) {
    (*out_)[key] = OrderedJson::array();
  } else {
    reader_->require(key, Json::array());
  }
}

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

void HfKeys::real_or_none(const char* key, double& value, double usual) {
  if (writes()) {
    (*out_)[key] = value == 0 ? OrderedJson() : OrderedJson(value);
  } else {
    value = reader_->has(key) ? reader_->real(key, 0) : usual;
  }
}

void HfKeys::router_loss(double& weight, double usual) {
  bool is_used = weight > 0;
  flag("output_router_logits", is_used, false);
  if (!writes()) weight = is_used ? reader_->real("router_aux_loss_coef", usual) : 0;
  if (writes() && is_used) (*out_)["router_aux_loss_coef"] = weight;
}

void HfKeys::turning_layers(const char* key, const char* interval_key, ModelConfig& config) {
  if (writes()) {
    auto& turning = (*out_)[key] = OrderedJson::array();
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      turning.push_back(config.turns(layer) ? 1 : 0);
    }
    return;
  }
  const Json* turning = reader_->find(key);
  if (turning == nullptr) {
    const int64_t interval = reader_->integer(interval_key, 4);
    if (interval < 1) reader_->fail(fmt::format("'{}' must be at least 1", interval_key));
    config.layer_pattern = pattern_of('f', 'n', interval, config.num_layers);
    return;
  }
  if (!turning->is_array() || std::ssize(*turning) < config.num_layers) {
    reader_->fail(fmt::format("'{}' must be a list of {} numbers (num_hidden_layers)", key,
                              config.num_layers));
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const Json& turns = (*turning)[static_cast<size_t>(layer)];
    if (!turns.is_number_integer()) {
      reader_->fail(fmt::format("'{}' has {}, and only 0 and 1 are", key, turns.dump()));
    }
    config.layer_pattern += turns == 0 ? 'n' : 'f';
  }
}

void HfKeys::rotary(ModelConfig& config, const Rotary& names) {
  if (!writes()) {
    config.rope_theta = reader_->real(names.base, names.usual_base);
    if (names.differs_in_windows) {
      config.rope_local_theta = names.usual_local_base != 0
                                    ? reader_->real("rope_local_base_freq", names.usual_local_base)
                                    : config.rope_theta;
    }
    config.partial_rotary_factor = reader_->real(names.share, names.usual_share);
    read_rope(*reader_, names.differs_in_windows, config);
    return;
  }
  OrderedJson rope = rope_json(config);
  if (names.differs_in_windows) {  // transformers 5; what follows is 4's.
    const double local = config.rope_local_theta != 0 ? config.rope_local_theta : config.rope_theta;
    (*out_)["rope_parameters"] = {
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}},
        {"full_attention", rope}};
    if (names.usual_local_base != 0) (*out_)["rope_local_base_freq"] = local;
  } else {
    (*out_)["rope_parameters"] = rope;
  }
  if (names.writes_share || config.partial_rotary_factor != 1) {
    (*out_)[names.share] = config.partial_rotary_factor;
  }
  (*out_)[names.base] = config.rope_theta;
  if (config.rope_type == "default") return;
  rope.erase("rope_theta");
  if (config.rope_type == "longrope") {  // Where Phi-3's files have it.
    (*out_)["original_max_position_embeddings"] = config.rope_original_positions;
    rope.erase("partial_rotary_factor");
    rope.erase("original_max_position_embeddings");
    rope.erase(
        "rope_type");  // Version 4 takes these three keys alone, and of others of Phi-3 none.
    rope["type"] = "longrope";
  }
  (*out_)["rope_scaling"] = std::move(rope);
}

}  // namespace atl::weights
