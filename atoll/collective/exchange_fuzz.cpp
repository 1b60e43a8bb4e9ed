// A member fed parts made of any bytes: it refuses them or takes them in, and never reads or writes
// out of bounds.
#include <cstdint>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using atl::swarm::Part;
  static const auto codec = atl::codec::make_codec("bf16");
  static const std::vector<float> values(10, 0.5F);
  atl::collective::Exchange exchange({.header = {.term = 1, .round = 2, .attempt = 0},
                                      .rank = 0,
                                      .members = {"a", "b", "c"},
                                      .weights = {1, 2, 3},
                                      .shares = {5, 5, 0}},
                                     *codec, values);
  if (!exchange.start()) return 0;
  atl::ByteReader reader(std::as_bytes(std::span(data, size)));
  try {
    for (int i = 0; i < 20 && reader.remaining() > 0; ++i) {
      const auto bits = reader.get<uint8_t>();  // Mostly right, so that the bytes get through.
      Part part{.header = exchange.plan().header,
                .kind = (bits & 1) != 0 ? atl::swarm::PartKind::kMean
                                        : atl::swarm::PartKind::kContribution,
                .sender = 1 + (bits >> 1) % 2,
                .total = codec->max_encoded_bytes(5)};
      part.share = (bits & 1) != 0 ? part.sender : 0;
      if ((bits & 16) != 0) part.sender = reader.get<int32_t>();
      if ((bits & 32) != 0) part.share = reader.get<int32_t>();
      if ((bits & 64) != 0) part.offset = reader.get<uint8_t>();
      if ((bits & 128) != 0) part.total = reader.get<uint64_t>();
      const auto bytes = reader.get_bytes(std::min<size_t>(reader.remaining(), bits & 31));
      part.data.assign(bytes.begin(), bytes.end());
      if (!exchange.receive(part)) return 0;
    }
  } catch (const atl::InputError&) {
    return 0;  // The input was too short.
  }
  return 0;
}
