// Model files from strangers: a safetensors file or a config.json of any bytes is refused with an
// InputError or leads to a model whose sizes are sane.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/weights/hf_config.h"
#include "atoll/weights/safetensors.h"

namespace {

void read_safetensors(std::span<const std::byte> bytes) {
  std::map<std::string, std::string> metadata;
  size_t total = 0;
  for (const auto& tensor : atl::weights::parse_safetensors(bytes, "fuzz", &metadata)) {
    total += tensor.bytes.size();
    for (const std::byte byte : tensor.bytes) total += byte == std::byte{0} ? 0 : 0;
  }
  ATOLL_CHECK(total <= bytes.size());
}

void read_config(std::string_view text) {
  const auto found = atl::weights::from_hf_config(text, "fuzz");
  if (found.config.num_layers <= 1000) ATOLL_CHECK(num_parameters(found.config) > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data + 1, size - 1));
  try {
    if (data[0] % 3 == 0) {
      read_safetensors(bytes);
    } else if (data[0] % 3 == 1) {  // A header of the right length, so that its JSON is reached.
      std::vector<std::byte> file(8 + bytes.size());
      const uint64_t header = bytes.size();
      std::memcpy(file.data(), &header, 8);
      if (!bytes.empty()) std::memcpy(file.data() + 8, bytes.data(), bytes.size());
      read_safetensors(file);
    } else {
      read_config({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
  } catch (const atl::InputError&) {
  }
  return 0;
}
