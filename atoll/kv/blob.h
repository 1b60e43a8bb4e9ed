#pragma once
// Keys and values of some tokens of a text, as they are kept and sent: a head that says whose they
// are, what entropy coders made of them, and a checksum. Whoever reads one says what it has to be
// of, and gets that or an error.
//
// magic u32 "ATKV", version u16, level u8, step u8, model (u32 length, bytes), layers i32 i32,
// channels u32, begin i64, tokens u32, tables or profile u64, then the body; last u64 xxh3 of all
// before it. Little-endian.
//
// Shapes: P = planes: of each layer the keys, then the values; C = channels (heads times head
// size); T = tokens.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/blob_head.h"
#include "atoll/kv/lossy_coder.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

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

/// Level 0. `kv_PCT`: the bits of bfloat16s.
Bytes encode_blob(const BlobHead& head, std::span<const uint16_t> kv_PCT,
                  const ModelTables& tables = {});

/// Another level. Throws InputError where the profile is another model's or lacks it.
Bytes encode_blob(const BlobHead& head, std::span<const uint16_t> kv_PCT, const Lossy& lossy,
                  ExactEnds ends);

/// Throws InputError where it is none; the body is not read.
BlobHead read_blob_head(std::span<const std::byte> blob);

/// Throws InputError where the blob is damaged, of something else, or of other tables.
std::vector<uint16_t> decode_blob(std::span<const std::byte> blob, const BlobHead& expected,
                                  const ModelTables& tables = {});

/// The same of a lossy level: the bits are the same on every machine. Throws InputError where it
/// was made with another profile, too.
std::vector<uint16_t> decode_blob(std::span<const std::byte> blob, const BlobHead& expected,
                                  const Lossy& lossy);

}  // namespace atl::kv
