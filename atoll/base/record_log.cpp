#include "atoll/base/record_log.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"

namespace atl {
namespace {

constexpr std::string_view kMagic = "ATOLLOG1";
constexpr size_t kHeadBytes = 16;
constexpr uint32_t kFarthest = 1 << 16;  // Records behind a damaged one by which it is known.

uint64_t checksum(uint32_t index, std::span<const std::byte> data) {
  const Bytes all =
      ByteWriter().put(static_cast<uint32_t>(data.size())).put(index).put_bytes(data).take();
  return xxh3(all.data(), all.size());
}

void put_record(ByteWriter& out, uint32_t index, std::span<const std::byte> data) {
  ATOLL_CHECK(data.size() <= RecordLog::kMaxRecordBytes, "records are small");
  out.put(static_cast<uint32_t>(data.size())).put(index).put(checksum(index, data));
  out.put_bytes(data);
}

struct Record {
  uint32_t index = 0;
  std::span<const std::byte> data;
};

/// The whole and undamaged record at the beginning of `bytes`, if its index is from `first` to
/// `last`.
std::optional<Record> record_at(std::span<const std::byte> bytes, uint32_t first, uint32_t last) {
  if (bytes.size() < kHeadBytes) return std::nullopt;
  ByteReader reader(bytes);
  const auto length = reader.get<uint32_t>();
  const auto index = reader.get<uint32_t>();
  const auto sum = reader.get<uint64_t>();
  if (index < first || index > last) return std::nullopt;
  if (length > RecordLog::kMaxRecordBytes || length > reader.remaining()) return std::nullopt;
  const auto data = reader.get_bytes(length);
  if (checksum(index, data) != sum) return std::nullopt;
  return Record{index, data};
}

std::filesystem::path lock_of(std::filesystem::path path) { return path += ".lock"; }

}  // namespace

RecordLog::RecordLog(std::filesystem::path path)
    : path_(std::move(path)), lock_(lock_of(path_), O_RDWR | O_CREAT) {
  if (lock_.get() < 0) fail_at("lock", path_);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail_at("lock", path_);
    throw InputError(fmt::format("'{}' is in use by another process", path_.string()));
  }
  if (std::filesystem::exists(path_)) {
    read_found();
  } else {
    replace({});
  }
}

void RecordLog::read_found() {
  const std::string contents = read_file(path_);
  const auto bytes = as_byte_span(contents);
  if (!contents.starts_with(kMagic)) {
    throw InputError(fmt::format("'{}' is no record log of this version", path_.string()));
  }
  size_bytes_ = kMagic.size();
  while (const auto record = record_at(bytes.subspan(size_bytes_), num_records_, num_records_)) {
    found_.emplace_back(record->data.begin(), record->data.end());
    num_records_ += 1;
    size_bytes_ += kHeadBytes + record->data.size();
  }
  require_torn(bytes, size_bytes_);
  num_torn_bytes_ = bytes.size() - size_bytes_;
  file_ = Descriptor(path_, O_WRONLY | O_APPEND);
  if (file_.get() < 0) fail_at("write", path_);
  if (num_torn_bytes_ == 0) return;
  if (::ftruncate(file_.get(), static_cast<off_t>(size_bytes_)) != 0) fail_at("write", path_);
  if (::fsync(file_.get()) != 0) fail_at("sync", path_);
}

void RecordLog::require_torn(std::span<const std::byte> bytes, size_t begin) const {
  for (size_t at = begin + 1; at < bytes.size(); ++at) {
    const auto record = record_at(bytes.subspan(at), num_records_ + 1, num_records_ + kFarthest);
    if (!record) continue;
    throw InputError(
        fmt::format("'{}' is damaged at byte {}: record {} cannot be read, and record {} follows",
                    path_.string(), begin, num_records_, record->index));
  }
}

void RecordLog::append(std::span<const std::byte> record) {
  ATOLL_CHECK(!failed_, "a log that failed takes no more");
  ByteWriter out;
  put_record(out, num_records_, record);
  const Bytes bytes = out.take();
  try {
    write_all(file_, bytes, path_);
    if (::fdatasync(file_.get()) != 0) fail_at("sync", path_);
  } catch (const InputError&) {
    failed_ = true;
    // At best, nothing of it stays. If not, its checksum tells.
    [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(size_bytes_));
    throw;
  }
  num_records_ += 1;
  size_bytes_ += bytes.size();
}

void RecordLog::replace(std::span<const Bytes> records) {
  ATOLL_CHECK(!failed_, "a log that failed takes no more");
  ByteWriter out;
  out.put_bytes(as_byte_span(kMagic));
  uint32_t index = 0;
  for (const Bytes& record : records) put_record(out, index++, record);
  const Bytes bytes = out.take();
  write_file_atomically(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  file_ = Descriptor(path_, O_WRONLY | O_APPEND);
  if (file_.get() < 0) fail_at("write", path_);
  num_records_ = index;
  size_bytes_ = bytes.size();
}

}  // namespace atl
