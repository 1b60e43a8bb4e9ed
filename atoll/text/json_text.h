#pragma once
// JSON that came from outside, with the parser's reason where it is none.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::text {

/// `where` (a file, a line) begins the message. Throws InputError.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // "[json...] parse error at line 1, column 3: WHY; last read: BYTES" (which may be no UTF-8).
    std::string why = error.what();
    why = why.substr(why.find("parse error"));
    why = why.substr(0, why.find("; last read"));
    throw InputError(fmt::format("{}: not valid JSON: {}", where, why));
  } catch (const nlohmann::json::out_of_range&) {
    throw InputError(fmt::format("{}: a number is too large", where));
  }
}

/// Puts \ufffd in the place of escapes for half a surrogate pair, which are no text (Python's json
/// writes them all the same); returns how many there were.
int64_t repair_surrogates(std::string& json);

}  // namespace atl::text
