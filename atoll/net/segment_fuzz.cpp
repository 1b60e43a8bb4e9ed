// Any bytes as a header and as a Hello: what is read is written the same, and is within its bounds.
#include <algorithm>
#include <cstdint>
#include <span>

#include "atoll/base/check.h"
#include "atoll/net/segment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace atl::net;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size >= kHeaderBytes) {
    const auto head = bytes.first<kHeaderBytes>();
    if (const auto header = decode_header(head)) {
      ATOLL_CHECK(header->size <= kMaxPieceBytes);
      ATOLL_CHECK(std::ranges::equal(encode(*header), head));
    }
  }
  if (const auto hello = decode_hello(bytes); hello && hello->version == kProtocolVersion) {
    const auto again = encode(*hello);
    ATOLL_CHECK(std::ranges::equal(std::span(again).subspan(kHeaderBytes), bytes));
  }
  return 0;
}
