// store.json: what a token store says about itself.
#include <fmt/format.h>

#include <array>
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
constexpr std::array<std::string_view, 2> kTypeNames = {"uint16", "uint32"};

}  // namespace

std::span<const std::string_view> names_of(TokenType) { return kTypeNames; }

std::string split_name(Split split) { return split == Split::kTrain ? "train" : "validation"; }

std::string StoreInfo::digest() const {
  return hex(Sha256()
                 .update(fmt::format("{} {} {} {} {} {} {} {} {}", kFormat, kVersion,
                                     names_of(type)[static_cast<size_t>(type)], vocab_size,
                                     tokenizer_sha256, train.tokens_sha256, train.documents_sha256,
                                     validation.tokens_sha256, validation.documents_sha256))
                 .finish());
}

std::string format_store_info(const StoreInfo& info) {
  Json json = {{"format", kFormat}, {"version", kVersion}};
  json.update(json_of<Json>(info));
  json["digest"] = info.digest();
  if (info.shard) json["shard"] = json_of<Json>(*info.shard);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json parse_format(std::string_view text, const char* format, const std::string& name) {
  Json json = text::parse_json<Json>(text, "'" + name + "'");
  if (!json.is_object()) throw InputError(fmt::format("'{}' is not a JSON object", name));
  if (json.value("format", Json()) != format) {
    throw InputError(fmt::format("'{}': \"format\" must be \"{}\"", name, format));
  }
  const Json version = json.value("version", Json());
  if (version == kVersion) return json;
  throw InputError(fmt::format("'{}' has \"version\" {}; this program reads \"version\" {}", name,
                               version.dump(), kVersion));
}

StoreInfo parse_store_info(std::string_view text, const std::string& name) {
  const Json json = parse_format(text, kFormat, name);
  auto info = struct_of<StoreInfo>(json, fmt::format("'{}'", name));
  const auto require = [&](bool is_so, const char* what) {
    if (!is_so) throw InputError(fmt::format("'{}': {}", name, what));
  };
  if (json.contains("shard")) {
    info.shard = struct_of<ShardInfo>(json["shard"], fmt::format("'{}', shard", name));
    require(info.shard->index < info.shard->count, "\"index\" must be below \"count\"");
  }
  require(info.end_of_text < info.vocab_size, "\"end_of_text\" must be below \"vocab_size\"");
  require(json.value("digest", Json()) == info.digest(),
          "it was edited: its digest does not match its contents");
  return info;
}

}  // namespace atl::data
