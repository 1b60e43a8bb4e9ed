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

/// What is written is read as it was meant: `data` says what that is.
void write(const uint8_t* data, size_t size) {
  SampleGguf file;
  for (size_t i = 0; i + 1 < size && i < 64; i += 2) {
    const std::string key = std::to_string(i);
    const std::string text(data[i + 1], static_cast<char>(data[i]));
    switch (data[i] % 4) {
      case 0:
        file.text(key, text);
        break;
      case 1:
        file.whole(key, data[i + 1]);
        break;
      case 2:
        file.texts(key, {text, key});
        break;
      default:
        file.tensor({key, {data[i + 1]}, 0, std::string(4U * data[i + 1], '\2')});
    }
  }
  const std::string bytes = file.file();
  const GgufContents found = parse_gguf(as_byte_span(bytes), "written");
  size_t num_tensors = 0;
  for (size_t i = 0; i + 1 < size && i < 64; i += 2) {
    const std::string text(data[i + 1], static_cast<char>(data[i]));
    if (data[i] % 4 == 3) {
      ATOLL_CHECK(found.tensors[num_tensors++].num_values() == data[i + 1]);
      continue;
    }
    const GgufValue& value = found.values.at(std::to_string(i));
    if (data[i] % 4 == 0) ATOLL_CHECK(std::get<std::string_view>(value) == text);
    if (data[i] % 4 == 1) ATOLL_CHECK(std::get<int64_t>(value) == data[i + 1]);
    if (data[i] % 4 == 2) ATOLL_CHECK(std::get<GgufList>(value).texts[0] == text);
  }
  ATOLL_CHECK(found.tensors.size() == num_tensors);
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
  write(data, size);
  return 0;
}
