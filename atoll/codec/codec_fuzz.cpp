// Any bytes: decode() throws or fills the values with finite numbers; where each value that is sent
// stands for itself, they encode to the same bytes. The first three bytes choose the codec, whether
// the header is made right (else few inputs would reach the body), and how many values the receiver
// expects.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
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
    for (const char* name :
         {"topk(0.2)+fp32", "topk(0.01)+sign3", "chunk_topk(3/50)+bf16", "chunk_topk(4/7)+fp16",
          "random(0.1)+int8", "random(0.3)+fp16", "rolling(0.5)+fp32",
          "rolling(0.25)+topk(0.3)+bf16", "random(0.5)+topk(0.3)+e3m0"}) {
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

size_t num_nonzero(const std::vector<float>& values) {
  return values.size() - static_cast<size_t>(std::count(values.begin(), values.end(), 0.0F));
}

/// Whether encoding what was decoded must give the same bytes: values travel as they are, and the
/// kept ones are told from the others by not being zero.
bool is_reversible(const Codec& codec, const std::vector<float>& values, uint32_t sequence) {
  const std::string_view name = codec.name();
  if (!name.ends_with("fp32") && !name.ends_with("bf16") && !name.ends_with("fp16")) return false;
  if (codec.is_dense() || name.find("topk") == std::string_view::npos) return true;
  atl::Bytes bytes;
  std::vector<float> kept(values.size(), 1.0F);
  codec.encode(kept, bytes, sequence);
  codec.decode(bytes, kept, sequence);
  return num_nonzero(values) == num_nonzero(kept);
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
  if (is_reversible(codec, values, sequence)) {
    atl::Bytes again;
    codec.encode(values, again, sequence);
    ATOLL_CHECK(again == input);
  }
  return 0;
}
