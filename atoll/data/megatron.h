#pragma once
// Megatron's token files, version 1, as GPT-NeoX reads and writes them: PREFIX.bin holds the tokens
// of all documents, PREFIX.idx the sizes of the sequences in it, their places, and which sequence
// begins a document. NeoX makes one sequence of each document and shuffles sequences.
//
// Reading is thread-safe.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "atoll/base/file.h"
#include "atoll/data/packed_numbers.h"

namespace atl::data {

/// A .idx file's contents. A view of its bytes.
struct MegatronIndex {
  NumberType type = NumberType::kU16;  // Of the tokens.
  int64_t num_tokens = 0;
  PackedNumbers<int32_t> sizes;            // Tokens of each sequence.
  PackedNumbers<int64_t> pointers;         // Where each begins in the .bin, in bytes.
  PackedNumbers<int64_t> document_starts;  // The first sequence of each document, then the end.

  int64_t num_sequences() const { return static_cast<int64_t>(sizes.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(document_starts.size()) - 1; }
  /// Whether each sequence is a document, and each document a sequence.
  bool is_one_to_one() const;
};

/// Throws InputError naming `name` unless the sequences lie one behind the other in a .bin of
/// `bin_bytes` bytes and fill it, and documents begin in ascending order.
MegatronIndex parse_megatron_index(std::span<const std::byte> idx, size_t bin_bytes,
                                   const std::string& name);

class MegatronStore {
 public:
  /// `prefix` may be given with .idx or .bin. Throws InputError as parse_megatron_index() does.
  static MegatronStore open(const std::filesystem::path& prefix);

  const MegatronIndex& index() const { return index_; }
  std::filesystem::path idx_path() const { return path_with(".idx"); }
  std::filesystem::path bin_path() const { return path_with(".bin"); }
  const std::string& prefix() const { return prefix_; }
  std::span<const std::byte> idx_bytes() const { return idx_.bytes(); }
  std::span<const std::byte> bin_bytes() const { return bin_.bytes(); }

  /// Copies ids.size() tokens of a sequence, from its token `begin` on.
  void read(int64_t sequence, int64_t begin, std::span<int64_t> ids) const;
  /// Reads everything. Throws InputError at a token that is negative or not below `vocab_size`.
  void require_ids_below(int64_t vocab_size) const;

 private:
  MegatronStore(std::string prefix, MappedFile idx, MappedFile bin);
  std::filesystem::path path_with(const char* ending) const { return prefix_ + ending; }

  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  MegatronIndex index_;
};

/// Writes both files from front to back, the bytes that NeoX's own builder writes. Nothing is left
/// behind unless it finishes. One owner thread.
class MegatronWriter {
 public:
  /// `name` is what both files' names begin with; it may also be the name of one of the two files.
  /// Throws UsageError when one of them exists and `overwrite` is not set.
  MegatronWriter(const std::string& name, NumberType type, bool overwrite);
  ~MegatronWriter();

  /// Appends a document of one sequence. Throws InputError at one of 2^31 tokens or more, at an id
  /// that the type cannot hold, and when the disk is full.
  void add(std::span<const int64_t> ids);

  struct Hashes {
    std::string idx_sha256;
    std::string bin_sha256;
  };
  /// Syncs and names the files, the .idx last.
  Hashes finish();

 private:
  struct Draft;
  NumberType type_;
  std::unique_ptr<Draft> draft_;
};

}  // namespace atl::data
