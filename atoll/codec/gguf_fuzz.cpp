// Files of strangers, nearly whole: each is read or refused, and what is read lies in the file.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/gguf_file.h"
#include "atoll/testing/sample_gguf.h"

namespace atl::codec {
namespace {

void read(const std::string& file) {
  const std::span<const std::byte> bytes = as_byte_span(file);
  try {
    for (const GgufTensor& tensor : parse_gguf(bytes, "fuzz").tensors) {
      ATOLL_CHECK(tensor.bytes.empty() ||
                  (tensor.bytes.data() >= bytes.data() &&
                   tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size()));
      std::vector<float> values(static_cast<size_t>(tensor.num_values()));
      dequantize(tensor.type, tensor.bytes, values);
    }
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::codec

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace atl::codec;
  static const std::string kSample = sample_gguf().file();
  read(std::string(reinterpret_cast<const char*>(data), size));
  std::string file = kSample;
  for (size_t i = 0; i + 2 < size && i < 30; i += 3) {
    file[(size_t{data[i]} << 8 | data[i + 1]) % file.size()] = static_cast<char>(data[i + 2]);
  }
  read(file);
  return 0;
}
