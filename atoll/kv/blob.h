#pragma once
// Keys and values of some tokens of a text, as they are kept and sent: a head that says whose they
// are, what entropy coders made of them, and a checksum. Whoever reads one says what it has to be
// of, and gets that or an error.
//
// magic u32 "ATKV", version u16, level u8, 0 u8, model (u32 length, bytes), layers i32 i32,
// channels u32, begin i64, tokens u32, tables u64, then the body; last u64 xxh3 of all before it.
// Little-endian.
//
// Shapes: P = planes: of each layer the keys, then the values; C = channels (heads times head
// size); T = tokens.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

enum class Level : uint8_t { kExact };

struct BlobHead {
  Level level = Level::kExact;
  std::string model;  // As chains name it (chain::Lease::digest).
  int32_t first_layer = 0;
  int32_t end_layer = 0;  // Before which its layers end.
  uint32_t num_channels = 0;
  int64_t begin = 0;        // Its first token's position.
  uint32_t num_tokens = 0;  // At least one.

  size_t num_planes() const { return 2 * static_cast<size_t>(end_layer - first_layer); }
  size_t num_values() const { return num_planes() * num_channels * num_tokens; }
  bool operator==(const BlobHead&) const = default;
};

/// Tables (P, C) that were fitted to a model before; the empty ones: a blob has its own.
class ModelTables {
 public:
  ModelTables() = default;
  /// As ValueTable::write() has them, one behind the other. Throws InputError where they are none.
  explicit ModelTables(std::span<const std::byte> bytes);
  std::span<const ValueTable> of(const BlobHead& head) const;
  /// A hash; 0 of the empty ones.
  uint64_t id() const { return id_; }

 private:
  std::vector<ValueTable> tables_PC_;  // Of all layers.
  uint64_t id_ = 0;
};

/// `kv_PCT`: the bits of bfloat16s.
Bytes encode_blob(const BlobHead& head, std::span<const uint16_t> kv_PCT,
                  const ModelTables& tables = {});

/// Throws InputError where it is none; the body is not read.
BlobHead read_blob_head(std::span<const std::byte> blob);

/// Throws InputError where the blob is damaged, of something else, or of other tables.
std::vector<uint16_t> decode_blob(std::span<const std::byte> blob, const BlobHead& expected,
                                  const ModelTables& tables = {});

}  // namespace atl::kv
