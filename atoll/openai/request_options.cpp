#include "atoll/openai/request_options.h"

#include <fmt/format.h>

#include <limits>

#include "atoll/base/number.h"

namespace atl::openai {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

std::map<int64_t, float> read_bias(Fields& fields) {
  std::map<int64_t, float> bias;
  const Json* json = fields.find("logit_bias");
  if (json == nullptr) return bias;
  if (!json->is_object()) refuse("logit_bias", "'logit_bias' must be an object of ids and numbers");
  for (const auto& [name, value] : json->items()) {
    const auto id = number_in<int64_t>(name);
    const double added = value.is_number() ? value.get<double>() : 1000;
    if (!id || *id < 0 || *id > kMaxId || !(added >= -100 && added <= 100)) {
      refuse("logit_bias",
             fmt::format("'logit_bias' must give ids numbers from -100 to 100; '{}' has {}", name,
                         value.dump()));
    }
    bias[*id] = static_cast<float>(added);
  }
  return bias;
}

std::vector<std::string> read_stops(Fields& fields, const RequestLimits& limits) {
  std::vector<std::string> stops;
  const Json* json = fields.find("stop");
  if (json == nullptr) return stops;
  const Json list = json->is_string() ? Json::array({*json}) : *json;
  if (!list.is_array() || std::ssize(list) > limits.max_stops) {
    refuse("stop", fmt::format("'stop' must be a text or a list of at most {}", limits.max_stops));
  }
  for (const Json& one : list) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty() ||
        std::ssize(one.get_ref<const std::string&>()) > limits.max_stop_bytes) {
      refuse("stop", fmt::format("each text of 'stop' must have from 1 to {} bytes",
                                 limits.max_stop_bytes));
    }
    stops.push_back(one.get<std::string>());
  }
  return stops;
}

}  // namespace

decoding::SamplerOptions read_sampler(Fields& fields) {
  decoding::SamplerOptions sampler;
  sampler.temperature = fields.number("temperature", 0, 2).value_or(1);
  sampler.top_p = fields.number("top_p", 0, 1).value_or(1);
  if (sampler.top_p == 0) refuse("top_p", "'top_p' must be above 0");
  sampler.top_k = std::max<int64_t>(fields.whole("top_k", -1, kMaxId).value_or(0), 0);
  sampler.min_p = fields.number("min_p", 0, 1).value_or(0);
  sampler.repetition_penalty = fields.number("repetition_penalty", 0.01, 100).value_or(1);
  sampler.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  sampler.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  return sampler;
}

std::optional<double> read_lossy_kv(Fields& fields) {
  const Json* json = fields.find("lossy_kv");
  if (json == nullptr) return std::nullopt;
  if (*json == false) return std::numeric_limits<double>::infinity();
  if (json->is_boolean()) refuse("lossy_kv", "'lossy_kv' must be a number of seconds, or false");
  return fields.number("lossy_kv", 0, 3600);
}

RequestOptions read_options(Fields& fields, const RequestLimits& limits) {
  RequestOptions options;
  options.sampler = read_sampler(fields);
  options.seed = fields.whole("seed", std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max());
  options.logit_bias = read_bias(fields);
  options.stops = read_stops(fields, limits);
  options.n = fields.whole("n", 1, limits.max_choices).value_or(1);
  options.stream = fields.flag("stream", false);
  if (const Json* json = fields.find("stream_options")) {
    if (!options.stream) refuse("stream_options", "'stream_options' is for streams");
    Fields inner(*json, "stream_options.");
    options.include_usage = inner.flag("include_usage", false);
    inner.pass_over({"include_obfuscation"});
    inner.refuse_unknown();
  }
  options.lossy_kv = read_lossy_kv(fields);
  fields.pass_over({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"});
  return options;
}

std::vector<int64_t> read_ids(const Json& json, const std::string& where) {
  std::vector<int64_t> ids;
  if (!json.is_array()) refuse(where, fmt::format("'{}' must be a list of ids", where));
  for (const Json& one : json) {
    const auto id = whole_in(one);
    if (!id || *id < 0 || *id > kMaxId) {
      refuse(where, fmt::format("'{}' must hold ids, not {}", where, one.dump().substr(0, 40)));
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace atl::openai
