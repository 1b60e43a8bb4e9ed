#pragma once
// Base64 (RFC 4648, section 4). Pure, thread-safe.
#include <optional>
#include <string>
#include <string_view>

namespace atl {

std::string to_base64(std::string_view bytes);
/// Nothing where `text` is not base64, padded to a multiple of four characters.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace atl
