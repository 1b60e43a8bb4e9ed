#pragma once
// Unicode's normalisation form C, as `tokenizers` has it: by the tables of Unicode 9
// (scripts/unicode_tables.py says how those differ from today's). Pure, thread-safe.
#include <string>
#include <string_view>

namespace atl::text {

/// `text`, which must be valid UTF-8, in form C: itself when it is so already, as nearly all text
/// is, else a copy in `scratch`.
std::string_view to_nfc(std::string_view text, std::string& scratch);

}  // namespace atl::text
