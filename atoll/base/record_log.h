#pragma once
// A file of records that outlives whoever writes it: what append() has returned from is read again
// after a kill or a power cut, in order.
//
// On disk: 8 bytes of magic, then records of
//   u32 length | u32 index, from 0 | u64 xxh3 of length, index and data | data.
// A record that was being written when its writer died is cut off by the next one. A damaged record
// that whole ones follow is no such thing: the file is refused rather than shortened.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/descriptor.h"

namespace atl {

class RecordLog {
 public:
  static constexpr size_t kMaxRecordBytes = size_t{16} << 20;

  /// Opens or makes it. Throws InputError when another process has it open, when it cannot be read
  /// or written, when it is something else or damaged.
  explicit RecordLog(std::filesystem::path path);

  /// What was there at first. Once.
  std::vector<Bytes> take_found() { return std::move(found_); }
  /// What a dying writer left of its last record, and was cut off.
  size_t num_torn_bytes() const { return num_torn_bytes_; }
  size_t size_bytes() const { return size_bytes_; }

  /// Durable on return. Throws InputError when the disk is full or fails: the record is not there,
  /// and no more can be added, since nobody knows what a disk that failed has kept.
  void append(std::span<const std::byte> record);
  /// These instead of all that is there, at once: a reader finds the old ones or the new.
  void replace(std::span<const Bytes> records);

 private:
  void read_found();
  /// Throws if a whole record begins behind `begin`.
  void require_torn(std::span<const std::byte> bytes, size_t begin) const;

  std::filesystem::path path_;
  Descriptor lock_;
  Descriptor file_;
  std::vector<Bytes> found_;
  size_t num_torn_bytes_ = 0;
  size_t size_bytes_ = 0;
  uint32_t num_records_ = 0;
  bool failed_ = false;
};

}  // namespace atl
