// .npy files from strangers: read or refused with an InputError; a header that is read is written
// back as one that reads the same.
#include <cstdint>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/npy.h"

namespace atl::data {
namespace {

void try_file(std::string_view file) {
  try {
    const NpyHeader header = parse_npy_header(as_byte_span(file), "fuzz");
    ATOLL_CHECK(header.data_offset + header.data_bytes() == file.size());
    const std::string again =
        format_npy_header(header) + std::string(file.substr(header.data_offset));
    const NpyHeader twin = parse_npy_header(as_byte_span(again), "again");
    ATOLL_CHECK(twin.type == header.type && twin.shape() == header.shape());
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  atl::data::try_file(input);
  // The input as the dictionary of a header, then a good file with one byte changed.
  const auto length = static_cast<char>(std::min<size_t>(size, 100));
  std::string file("\x93NUMPY\x01\x00", 8);
  file += {length, '\0'};
  file += input;
  atl::data::try_file(file);
  std::string good =
      atl::data::format_npy_header({.type = atl::data::NumberType::kU32, .num_rows = 4}) +
      std::string(16, 'x');
  if (size >= 2) good[(data[0] * 256U + data[1]) % good.size()] = input.back();
  atl::data::try_file(good);
  return 0;
}
