// Any bytes: decode() throws or fills the values with finite numbers; where each value stands for
// itself, they encode to the same bytes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::vector<std::string> names = atl::codec::codec_names();
  const auto codec = atl::codec::make_codec(names[data[0] / 4 % names.size()]);
  atl::Bytes input(reinterpret_cast<const std::byte*>(data) + 1,
                   reinterpret_cast<const std::byte*>(data) + size);
  // The receiver knows the count. Half of the inputs get the right header, to reach the body.
  constexpr size_t kHeader = atl::codec::Codec::kHeaderBytes;
  size_t count = 0;
  if (input.size() >= kHeader) {  // As many values as fit, and one too many.
    while (codec->max_encoded_bytes(count + 1) <= input.size()) ++count;
    count += data[0] % 4 == 3 ? 1 : 0;
  }
  if (input.size() >= kHeader && data[0] >= 128) {
    atl::Bytes right;
    codec->encode(std::vector<float>(count), right);
    std::copy_n(right.begin(), kHeader, input.begin());
  }
  std::vector<float> values(count);
  try {
    codec->decode(input, values);
  } catch (const atl::InputError&) {
    return 0;
  }
  ATOLL_CHECK(std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }));
  if (codec->bits_per_value() >= 16) {
    atl::Bytes again;
    codec->encode(values, again);
    ATOLL_CHECK(again == input);
  }
  return 0;
}
