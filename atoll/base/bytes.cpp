#include "atoll/base/bytes.h"

#include <fmt/format.h>

#include "atoll/base/error.h"

namespace atl {

std::span<const std::byte> ByteReader::get_bytes(size_t size) {
  if (size > rest_.size()) {
    throw InputError(fmt::format("truncated: {} bytes wanted, {} left", size, rest_.size()));
  }
  const auto bytes = rest_.first(size);
  rest_ = rest_.subspan(size);
  return bytes;
}

std::string ByteReader::get_string(size_t max_size) {
  const auto size = get<uint32_t>();
  if (size > max_size) {
    throw InputError(fmt::format("a string of {} bytes is longer than {}", size, max_size));
  }
  const auto bytes = get_bytes(size);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ByteReader::expect_end() const {
  if (!rest_.empty()) throw InputError(fmt::format("{} bytes too many", rest_.size()));
}

}  // namespace atl
