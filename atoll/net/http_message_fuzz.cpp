// Requests from strangers, however they are cut: the same comes of them, within the limits.
#include <cstdint>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/net/http_message.h"

namespace {

constexpr atl::net::HttpReader::Limits kLimits{.head_bytes = 300, .body_bytes = 100};

/// How the bytes were read: the bodies' and paths' lengths, and how it ended.
size_t read_all(std::string_view bytes, size_t step) {
  atl::net::HttpReader reader(kLimits);
  size_t found = 0;
  while (reader.state() != atl::net::HttpReader::State::kBad) {
    if (reader.state() == atl::net::HttpReader::State::kWhole) {
      const auto message = reader.take();
      ATOLL_CHECK(message.body.size() <= kLimits.body_bytes);
      found = found * 31 + message.body.size() * 7 + message.path.size() + 1;
      continue;
    }
    if (bytes.empty()) break;
    const size_t count = std::min(step, bytes.size());
    reader.add(bytes.substr(0, count));
    bytes.remove_prefix(count);
  }
  return found * 1000 + static_cast<size_t>(reader.status());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string good =
      "POST /v1/x?y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
      "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcdGET /%41 HTTP/1.0\r\n\r\n";
  for (size_t i = 0; i + 4 <= size && i < 16; i += 4) {
    const size_t at = data[i + 1] % (good.size() + 1);
    good.replace(at, data[i] % 8, reinterpret_cast<const char*>(data + i + 2), data[i + 3] % 3);
  }
  const size_t step = size == 0 ? 1 : data[0] % 7 + 1;
  ATOLL_CHECK(read_all(good, step) == read_all(good, good.size()));
  read_all(std::string_view(reinterpret_cast<const char*>(data), size), step);
  return 0;
}
