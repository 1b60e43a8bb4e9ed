#include "atoll/base/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <climits>

#include "atoll/base/check.h"

namespace atl {
namespace {

const unsigned char* unsigned_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* unsigned_bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

bool is_digit(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/';
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  ATOLL_CHECK(bytes.size() < INT_MAX / 2);
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends it with a zero.
  EVP_EncodeBlock(unsigned_bytes(text), unsigned_bytes(bytes), static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0 || text.size() > INT_MAX / 2) return {};
  const size_t num_padded = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  // OpenSSL skips white space around, which is none of the format.
  if (!std::ranges::all_of(text.substr(0, text.size() - num_padded), is_digit)) return {};
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size =
      EVP_DecodeBlock(unsigned_bytes(bytes), unsigned_bytes(text), static_cast<int>(text.size()));
  if (size < 0) return {};
  bytes.resize(bytes.size() - num_padded);
  return bytes;
}

}  // namespace atl
