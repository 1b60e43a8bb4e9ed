#pragma once
// One array of an order: what NeoX keeps in a .npy file and OLMo in a raw one. The type of its
// numbers belongs to the file, so it is part of the value.
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "atoll/data/npy.h"

namespace atl::data {

struct IndexMap {
  std::variant<std::vector<uint32_t>, std::vector<int32_t>, std::vector<int64_t>> numbers;
  bool is_pairs = false;   // Two columns.
  bool has_header = true;  // numpy's; a file of OLMo's has none.

  int64_t at(size_t index) const;
  size_t size() const;
  std::span<const std::byte> bytes() const;
  NpyHeader header() const;
  /// Of the file that write_index_map() makes, in hexadecimal.
  std::string sha256() const;
};

/// Writes under a temporary name, syncs and renames. Throws as DraftFile does.
void write_index_map(const IndexMap& map, const std::filesystem::path& file);

/// Throws InputError at the first number, or the shape or type, that differs from the file's; the
/// message says how many do. A file without numpy's magic is raw numbers of the map's type.
void compare_index_map(const IndexMap& map, const std::filesystem::path& file);

/// What NeoX's file names promise: *_shuffle_idx.npy is a permutation, *_doc_idx.npy has each
/// document equally often, *_sample_idx.npy ascends. Other names promise nothing. Throws InputError
/// at the first number that breaks it.
void check_index_file(const NpyFile& map, const std::filesystem::path& file);

}  // namespace atl::data
