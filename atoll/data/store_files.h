#pragma once
// What the writer and the reader of a token store agree on: file names and store.json.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "atoll/data/token_store.h"

namespace atl::data {

inline constexpr const char* kStoreFileName = "store.json";
inline constexpr const char* kMixtureFileName = "mixture.json";
std::string tokens_file_name(Split split);     // "tokens-train.npy"
std::string documents_file_name(Split split);  // "tokens-train.csv.gz"
size_t token_bytes(TokenType type);

/// The JSON object of that "format", in the one version that there is of each. Throws InputError.
nlohmann::ordered_json parse_format(std::string_view text, const char* format,
                                    const std::string& name);

std::string format_store_info(const StoreInfo& info);
/// Throws InputError naming `name` and the key at anything missing, of a wrong type or edited.
StoreInfo parse_store_info(std::string_view text, const std::string& name);

}  // namespace atl::data
