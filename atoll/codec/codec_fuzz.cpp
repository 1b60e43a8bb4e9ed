// Any bytes: decode() throws or fills the values with finite numbers; where each value stands for
// itself, they encode to the same bytes. The first three bytes choose the codec, whether the header
// is made right (else few inputs would reach the body), and how many values the receiver expects.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/codec.h"

namespace {

using atl::codec::Codec;

const std::vector<std::unique_ptr<Codec>>& codecs() {
  static const auto made = [] {
    std::vector<std::unique_ptr<Codec>> list;
    for (const std::string& name : atl::codec::codec_names()) {
      list.push_back(atl::codec::make_codec(name));
    }
    for (const char* name : {"topk(0.2)+fp32", "topk(0.01)+sign3", "chunk_topk(3/50)+bf16",
                             "random(0.1)+int8", "random(0.5)+topk(0.3)+e3m0"}) {
      list.push_back(atl::codec::make_codec(name));
    }
    return list;
  }();
  return made;
}

/// Dense bodies have one size for each count: the one that fits, so that some inputs are right.
size_t fitting_count(const Codec& codec, size_t size) {
  size_t count = 0;
  while (codec.max_encoded_bytes(count + 1) <= size) ++count;
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const Codec& codec = *codecs()[data[0] % codecs().size()];
  const bool has_right_header = data[1] % 4 != 0;
  const uint32_t sequence = data[1] / 4;
  atl::Bytes input(reinterpret_cast<const std::byte*>(data) + 3,
                   reinterpret_cast<const std::byte*>(data) + size);
  const size_t count =
      codec.is_dense() && data[2] < 128 ? fitting_count(codec, input.size()) : size_t{17} * data[2];
  if (has_right_header) {
    atl::Bytes right;
    codec.encode(std::vector<float>(count), right, sequence);
    input.resize(std::max(input.size(), Codec::kHeaderBytes));
    std::copy_n(right.begin(), Codec::kHeaderBytes, input.begin());
  }
  std::vector<float> values(count);
  try {
    codec.decode(input, values, sequence);
  } catch (const atl::InputError&) {
    return 0;
  }
  ATOLL_CHECK(std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }));
  if (codec.bits_per_value() >= 16) {
    atl::Bytes again;
    codec.encode(values, again, sequence);
    ATOLL_CHECK(again == input);
  }
  return 0;
}
