// Any bytes: decode() throws InputError or returns a message that encodes to the same bytes (but
// for the protocol version of Greet and Refused).
#include <cstdint>
#include <cstdlib>
#include <variant>

#include "atoll/base/error.h"
#include "atoll/chain/wire.h"

namespace {

void check(atl::Bytes frame) {
  try {
    const atl::Bytes again = atl::chain::encode(atl::chain::decode(frame));
    if (again.size() != frame.size()) std::abort();
    for (size_t i = 0; i < frame.size(); ++i) {
      if (i != 4 && i != 5 && again[i] != frame[i]) std::abort();
    }
  } catch (const atl::InputError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check({bytes.begin(), bytes.end()});
  if (size == 0) return 0;
  // Behind a valid beginning, so that random bytes reach the fields.
  atl::ByteWriter writer;
  writer.put(uint32_t{0x434C5441}).put(atl::chain::kProtocol);
  writer.put(static_cast<uint8_t>(data[0] % std::variant_size_v<atl::chain::Message>))
      .put_bytes(bytes.subspan(1));
  check(writer.take());
  return 0;
}
