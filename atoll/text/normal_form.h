#pragma once
// Unicode's normalisation forms, as `tokenizers` has them: by the tables of Unicode 9
// (scripts/unicode_tables.py says how those differ from today's). Pure, thread-safe.
#include <cstdint>
#include <string>
#include <string_view>

namespace atl::text {

/// D: what is composed falls apart. C: and is composed again. K: what is compatible becomes the
/// same before.
enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// `text`, which must be valid UTF-8, in that form: itself when it is so already, as nearly all
/// text is, else a copy in `scratch`.
std::string_view normalize(NormalForm form, std::string_view text, std::string& scratch);

}  // namespace atl::text
