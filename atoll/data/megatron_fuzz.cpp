// Megatron indices from strangers: read or refused with an InputError; what is read stays inside
// the tokens.
#include <cstdint>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/megatron.h"

namespace atl::data {
namespace {

void try_index(std::span<const std::byte> idx, size_t bin_bytes) {
  try {
    const MegatronIndex index = parse_megatron_index(idx, bin_bytes, "fuzz");
    const auto item_bytes = static_cast<int64_t>(number_bytes(index.type));
    for (size_t i = 0; i < index.sizes.size(); ++i) {
      ATOLL_CHECK(index.sizes[i] >= 0 && index.pointers[i] >= 0);
      ATOLL_CHECK(index.pointers[i] + index.sizes[i] * item_bytes <=
                  static_cast<int64_t>(bin_bytes));
    }
    ATOLL_CHECK(index.num_tokens * item_bytes == static_cast<int64_t>(bin_bytes));
    index.is_one_to_one();
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  atl::data::try_index(input, size);
  // The input behind a good beginning, then a good index with one byte changed.
  const std::string_view magic("MMIDIDX\0\0", 9);
  const auto header = [&](uint64_t num_sequences, uint64_t num_starts) {
    return atl::ByteWriter()
        .put_bytes(atl::as_byte_span(magic))
        .put(uint64_t{1})
        .put(uint8_t{8})
        .put(num_sequences)
        .put(num_starts)
        .take();
  };
  atl::Bytes behind = header(size / 20, size / 20);
  behind.insert(behind.end(), input.begin(),
                input.begin() + static_cast<ptrdiff_t>(size / 20 * 20));
  atl::data::try_index(behind, size);
  atl::Bytes good = header(2, 3);
  for (const int32_t length : {3, 1}) {
    const auto bytes = std::as_bytes(std::span(&length, 1));
    good.insert(good.end(), bytes.begin(), bytes.end());
  }
  for (const int64_t number : {0, 6, 0, 1, 2}) {
    const auto bytes = std::as_bytes(std::span(&number, 1));
    good.insert(good.end(), bytes.begin(), bytes.end());
  }
  ATOLL_CHECK(atl::data::parse_megatron_index(good, 8, "own").num_tokens == 4);
  if (size >= 3) good[(data[0] * 256U + data[1]) % good.size()] = input.back();
  atl::data::try_index(good, 8);
  return 0;
}
