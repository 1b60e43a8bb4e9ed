// Any bytes as a member's request of a circuit and as a relay's answer: what is read is written the
// same.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "atoll/base/check.h"
#include "atoll/net/circuit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace atl::net;
  const auto bytes = std::as_bytes(std::span(data, size));
  std::array<std::byte, kCircuitAnswerBytes> padded{};
  std::ranges::copy(bytes.first(std::min(size, padded.size())), padded.begin());
  const auto head = std::span(padded).first<kCircuitRequestBytes>();
  if (const auto request = decode_circuit_request(head)) {
    ATOLL_CHECK(std::ranges::equal(encode(*request), head));
  }
  if (const auto answer = decode_circuit_answer(padded)) {
    ATOLL_CHECK(std::ranges::equal(encode(*answer), padded));
  }
  return 0;
}
