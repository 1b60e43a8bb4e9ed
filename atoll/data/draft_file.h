#pragma once
// Large files, written from front to back and hashed on the way. One owner thread.
#include <filesystem>
#include <span>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/base/hash.h"

namespace atl::data {

/// Throws InputError naming the path when the disk is full or not writable.
class HashedFile {
 public:
  /// `shown` appears in messages: a user knows nothing of temporary names.
  explicit HashedFile(const std::filesystem::path& path, const std::filesystem::path& shown);
  explicit HashedFile(const std::filesystem::path& path) : HashedFile(path, path) {}
  void append(std::span<const std::byte> bytes);
  /// Syncs; returns the SHA-256 of the contents in hexadecimal.
  std::string finish();

 private:
  std::filesystem::path shown_;
  Descriptor file_;
  Sha256 hash_;
};

/// A file under a temporary name beside `target` until it is published; removed if it never is.
class DraftFile {
 public:
  /// Throws UsageError where `target` is there and no regular file: a device or a folder must not
  /// be renamed over. A link stands for what it leads to.
  explicit DraftFile(const std::filesystem::path& target);
  ~DraftFile();
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  void append(std::span<const std::byte> bytes) { file_.append(bytes); }
  /// Where it lies until then, to be read again.
  const std::filesystem::path& path() const { return temporary_; }
  /// Syncs and gives the file its name; returns its SHA-256 in hexadecimal.
  std::string publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  HashedFile file_;
  bool published_ = false;
};

}  // namespace atl::data
