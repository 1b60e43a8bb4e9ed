// A manifest of any bytes is refused with an InputError, or is one whose tensors lie within their
// bytes and that becomes the same bytes again.
#include <cstdint>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/weights/model_manifest.h"

namespace {

using namespace atl;
using namespace atl::weights;

void read(std::span<const std::byte> bytes) {
  try {
    const ModelManifest manifest = decode_manifest(bytes);
    for (const StoredTensor& tensor : manifest.tensors) {
      for (const int64_t row : {int64_t{0}, tensor.num_rows / 2, tensor.num_rows - 1}) {
        const int64_t place = tensor.order.place_of(row);
        ATOLL_CHECK(place >= 0 && place < tensor.num_rows);
      }
    }
    ATOLL_CHECK(decode_manifest(encode(manifest)).config == manifest.config);
  } catch (const InputError&) {
  }
}

/// A small model's, whose fields are reached by random bytes.
Bytes sample() {
  ModelManifest manifest;
  manifest.config.vocab_size = 11;
  manifest.config.num_layers = 1;
  for (const ParameterSpec& spec : parameter_specs(manifest.config)) {
    manifest.tensors.push_back(stored_tensor(codec::GgmlType::kBF16, {}, spec));
  }
  manifest.parts.resize(2);
  return encode(manifest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  Bytes near = sample();
  ATOLL_CHECK(decode_manifest(near).parts.size() == 2);
  for (size_t i = 0; i + 2 < size; i += 3) {
    near[(size_t{data[i]} * 256 + data[i + 1]) % near.size()] = bytes[i + 2];
    read(near);
  }
  if (size > 0) read(std::span(near).first(near.size() - std::min<size_t>(size, near.size())));
  return 0;
}
