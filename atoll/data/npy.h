#pragma once
// numpy's .npy files: the index maps that NeoX publishes. Written as numpy.save writes them, byte
// for byte; read are versions 1 and 2 with whole numbers in one or two dimensions. OLMo's files of
// the same name have no header: has_npy_magic() tells them apart.
//
// Reading is thread-safe.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/base/file.h"
#include "atoll/data/packed_numbers.h"

namespace atl::data {

/// What a header says of the array behind it.
struct NpyHeader {
  NumberType type = NumberType::kU8;
  int64_t num_rows = 0;
  int64_t num_columns = 1;
  bool is_matrix = false;  // Two dimensions, also where the second is 1.
  size_t data_offset = 0;  // Bytes of the header.

  size_t data_bytes() const;
  /// "(10,)" or "(10, 2)".
  std::string shape() const;
};

bool has_npy_magic(std::span<const std::byte> bytes);

/// The header of version 1.0 that numpy.save writes before such an array (data_offset is ignored).
std::string format_npy_header(const NpyHeader& header);

/// Throws InputError naming `name` at a header that is damaged, lies about the size of `bytes` (the
/// whole file) or describes what is not read here: other types, big-endian, Fortran order.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name);

/// A whole .npy file, memory-mapped.
class NpyFile {
 public:
  /// Throws InputError as parse_npy_header() does.
  explicit NpyFile(const std::filesystem::path& path);
  const NpyHeader& header() const { return header_; }
  /// The numbers, row by row.
  std::span<const std::byte> data() const { return file_.bytes().subspan(header_.data_offset); }

 private:
  MappedFile file_;
  NpyHeader header_;
};

}  // namespace atl::data
