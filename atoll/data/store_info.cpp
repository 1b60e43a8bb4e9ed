// store.json: what a token store says about itself.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/hash.h"
#include "atoll/data/store_files.h"
#include "atoll/text/json_text.h"

namespace atl::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "atoll token store";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxCount = int64_t{1} << 56;  // So that no product of counts overflows.

const char* type_name(TokenType type) { return type == TokenType::kU16 ? "uint16" : "uint32"; }

/// Reads typed fields of one JSON object; every complaint names the file and the key.
class Fields {
 public:
  Fields(const Json& object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object_.is_object()) throw InputError(fmt::format("'{}' is not a JSON object", name_));
  }
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw InputError(fmt::format("'{}' lacks \"{}\"", name_, key));
    return *found;
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) fail(key, "a string");
    return value.get<std::string>();
  }
  int64_t count(const char* key) const {
    const Json& value = at(key);
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= kMaxCount;
    if (!fits) fail(key, "a count");
    return value.get<int64_t>();
  }
  double share(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= 1)) {
      fail(key, "a share between 0 and 1");
    }
    return value.get<double>();
  }
  [[noreturn]] void fail(const char* key, const char* expected) const {
    throw InputError(fmt::format("'{}': \"{}\" must be {}", name_, key, expected));
  }

 private:
  const Json& object_;
  std::string name_;
};

/// A part of it, by its list of fields.
template <typename Part>
Part part_from_json(const Json& object, const std::string& name) {
  const Fields fields(object, name);
  Part part;
  visit_fields(part, [&]<typename T>(const char* key, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value = fields.text(key);
    } else {
      value = fields.count(key);
    }
  });
  return part;
}

}  // namespace

std::string split_name(Split split) { return split == Split::kTrain ? "train" : "validation"; }

std::string StoreInfo::digest() const {
  return hex(Sha256()
                 .update(fmt::format("{} {} {} {} {} {} {} {} {}", kFormat, kVersion,
                                     type_name(type), vocab_size, tokenizer_sha256,
                                     train.tokens_sha256, train.documents_sha256,
                                     validation.tokens_sha256, validation.documents_sha256))
                 .finish());
}

std::string format_store_info(const StoreInfo& info) {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"vocab_size", info.vocab_size},
               {"dtype", type_name(info.type)},
               {"tokenizer_sha256", info.tokenizer_sha256},
               {"end_of_text", info.end_of_text},
               {"validation_share", info.validation_share},
               {"sources", info.sources},
               {"train", json_of<Json>(info.train)},
               {"validation", json_of<Json>(info.validation)},
               {"digest", info.digest()}};
  if (info.shard) json["shard"] = json_of<Json>(*info.shard);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

StoreInfo parse_store_info(std::string_view text, const std::string& name) {
  const Json json = text::parse_json<Json>(text, "'" + name + "'");
  const Fields fields(json, name);
  if (fields.text("format") != kFormat) fields.fail("format", kFormat);
  if (fields.count("version") != kVersion) {
    throw InputError(fmt::format("'{}' has version {}, this program reads version {}", name,
                                 fields.count("version"), kVersion));
  }
  StoreInfo info;
  info.vocab_size = fields.count("vocab_size");
  const std::string type = fields.text("dtype");
  if (type != "uint16" && type != "uint32") fields.fail("dtype", "\"uint16\" or \"uint32\"");
  info.type = type == "uint16" ? TokenType::kU16 : TokenType::kU32;
  info.tokenizer_sha256 = fields.text("tokenizer_sha256");
  info.end_of_text = fields.count("end_of_text");
  info.validation_share = fields.share("validation_share");
  const Json& sources = fields.at("sources");
  if (!sources.is_array()) fields.fail("sources", "a list of strings");
  for (const Json& source : sources) {
    if (!source.is_string()) fields.fail("sources", "a list of strings");
    info.sources.push_back(source.get<std::string>());
  }
  info.train = part_from_json<SplitInfo>(fields.at("train"), name + " train");
  info.validation = part_from_json<SplitInfo>(fields.at("validation"), name + " validation");
  if (json.contains("shard")) {
    info.shard = part_from_json<ShardInfo>(json["shard"], name + " shard");
    if (info.shard->index >= info.shard->count) {
      Fields(json["shard"], name + " shard").fail("index", "below \"count\"");
    }
  }
  if (info.end_of_text >= info.vocab_size) fields.fail("end_of_text", "below \"vocab_size\"");
  if (fields.text("digest") != info.digest()) {
    throw InputError(fmt::format("'{}' was edited: its digest does not match its contents", name));
  }
  return info;
}

}  // namespace atl::data
