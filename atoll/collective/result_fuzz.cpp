// Any bytes as a round's result: decode_result() throws InputError or returns one that encodes to
// the same bytes; decode_mean() fails or fills the mean.
#include <cstdint>
#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/round_result.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace atl;
  static const auto codec = codec::make_codec("bf16");
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto check = [&](std::span<const std::byte> encoded) {
    try {
      collective::CommittedRound missed{.count = 20,
                                        .segment_values = 10,
                                        .members = {0, 3},
                                        .weights = {1, 2},
                                        .result = collective::decode_result(encoded)};
      const Bytes again = collective::encode(missed.result);
      if (!std::ranges::equal(again, encoded)) std::abort();
      std::vector<float> mean(20);
      static_cast<void>(collective::decode_mean(missed, *codec, mean));
    } catch (const InputError&) {
      return;
    }
  };
  check(bytes);
  // Behind a valid beginning: two segments of one blob each, whose bytes are random.
  ByteWriter out;
  out.put(uint8_t{0}).put(uint32_t{2});
  const size_t half = size / 2;
  for (const auto& blob : {bytes.first(half), bytes.subspan(half)}) {
    out.put(uint32_t{1}).put(collective::kMeanKey).put(static_cast<uint32_t>(blob.size()));
    out.put_bytes(blob);
  }
  check(out.take());
  return 0;
}
