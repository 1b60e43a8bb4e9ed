#pragma once
// What the `atoll data` commands print of a token store, and JSON as they print it.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "atoll/data/store_statistics.h"
#include "atoll/data/token_store.h"

namespace atl::cli {

/// One line; bytes that are not UTF-8 are replaced.
std::string one_line(const nlohmann::ordered_json& json);

/// What store.json says of a store.
nlohmann::ordered_json store_json(const data::StoreInfo& info);
/// The same for people.
void print_store(const std::string& folder, const data::StoreInfo& info);
/// One of both, the first as one line.
void report_store(const std::string& folder, const data::StoreInfo& info, bool json);

/// The same with what the documents tell: lengths, bytes per token, sources.
void report_contents(const std::string& folder, const data::StoreInfo& info,
                     const data::StoreStatistics& statistics, bool json);

}  // namespace atl::cli
