#pragma once
// Blobs by name, in memory and, where there is a folder for them, on disk: those that nobody asked
// for longest go first. A cache: what it cannot keep it forgets, and nobody fails because of it.
// What it gives back may have been damaged on the disk; who reads a blob sees that.
//
// Names are digests that say nothing of what they name. Blobs of one group (a tenant's) can be
// purged together.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/descriptor.h"
#include "atoll/base/hash.h"
#include "atoll/base/mutex.h"

namespace atl::kv {

struct BlobName {
  Digest group{};
  Digest id{};

  auto operator<=>(const BlobName&) const = default;
};

struct BlobStoreOptions {
  int64_t memory_bytes = int64_t{256} << 20;
  std::filesystem::path folder;  // Empty: nothing is kept on disk.
  int64_t disk_bytes = int64_t{8} << 30;
};

/// Names and sizes, by when they were used. Pure.
class BlobOrder {
 public:
  explicit BlobOrder(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// It was used just now. Returns what has to go to keep the bound: itself, where it is too large.
  std::vector<BlobName> add(const BlobName& name, int64_t bytes);
  /// False where it is not there.
  bool use(const BlobName& name);
  bool has(const BlobName& name) const { return places_.contains(name); }
  void remove(const BlobName& name);
  std::vector<BlobName> of(const Digest& group) const;
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    BlobName name;
    int64_t bytes;
  };
  int64_t max_bytes_;
  int64_t bytes_ = 0;
  std::list<Entry> entries_;  // The last one used last.
  std::map<BlobName, std::list<Entry>::iterator> places_;
};

/// Thread-safe: files are read and written without others waiting for it.
class BlobStore {
 public:
  using Blob = std::shared_ptr<const Bytes>;

  /// Goes on with what lies in the folder. Throws UsageError where that cannot be written, or where
  /// another process uses it. `tell` hears, once, why a blob could not be written.
  BlobStore(BlobStoreOptions options, std::function<void(const std::string&)> tell);

  void put(const BlobName& name, Blob blob);
  /// Nothing where it has not got it.
  Blob get(const BlobName& name);
  bool has(const BlobName& name) const;
  /// Of a blob that turned out to be damaged.
  void remove(const BlobName& name);
  void purge(const Digest& group);
  int64_t memory_bytes() const;
  int64_t disk_bytes() const;

 private:
  std::filesystem::path path_of(const BlobName& name) const;
  void read_folder();
  void keep(const BlobName& name, Blob blob);
  void write(const BlobName& name, const Bytes& blob);
  Blob read(const BlobName& name);
  void unlink(const std::vector<BlobName>& names) const;

  const BlobStoreOptions options_;
  const std::function<void(const std::string&)> tell_;
  std::optional<Descriptor> lock_;
  mutable Mutex mutex_;
  BlobOrder in_memory_ ATOLL_GUARDED_BY(mutex_);
  BlobOrder on_disk_ ATOLL_GUARDED_BY(mutex_);
  std::map<BlobName, Blob> blobs_ ATOLL_GUARDED_BY(mutex_);
  uint64_t num_written_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_told_ ATOLL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::kv
