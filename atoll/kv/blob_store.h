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

using SharedBlob = std::shared_ptr<const Bytes>;

struct BlobStoreOptions {
  int64_t memory_bytes = int64_t{256} << 20;
  std::filesystem::path folder;  // Empty: nothing is kept on disk.
  int64_t disk_bytes = int64_t{8} << 30;
};

/// What is kept in one place, by when it was used. Pure.
class BlobOrder {
 public:
  struct Entry {
    BlobName name;
    int64_t bytes = 0;
    uint64_t version = 0;  // Of what is kept under the name, the latest has the highest.
    SharedBlob blob = nullptr;
  };

  explicit BlobOrder(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// It was used just now, and takes the place of what had its name. Returns what has to go to keep
  /// the bound: itself, where it is too large.
  std::vector<BlobName> add(Entry entry);
  /// It was used just now; null where it is not there.
  const Entry* use(const BlobName& name);
  bool has(const BlobName& name) const { return places_.contains(name); }
  void remove(const BlobName& name);
  void remove(const Digest& group);
  int64_t bytes() const { return bytes_; }

 private:
  int64_t max_bytes_;
  int64_t bytes_ = 0;
  std::list<Entry> entries_;  // The last one used last.
  std::map<BlobName, std::list<Entry>::iterator> places_;
};

/// Thread-safe: files are read and written without others waiting for it.
class BlobStore {
 public:
  /// Goes on with what lies in the folder. Throws UsageError where that cannot be written, or where
  /// another process uses it. `tell` hears, once, why a blob could not be written.
  BlobStore(BlobStoreOptions options, std::function<void(const std::string&)> tell);

  void put(const BlobName& name, SharedBlob blob);
  /// Null where it has not got it.
  SharedBlob get(const BlobName& name);
  bool has(const BlobName& name) const;
  /// Of a blob that turned out to be damaged.
  void remove(const BlobName& name);
  /// What is being put meanwhile goes as well. It is not there any more when this returns, whatever
  /// ends this process then; remove_purged() gives its room back.
  void purge(const Digest& group);
  void remove_purged();
  int64_t memory_bytes() const;
  int64_t disk_bytes() const;

 private:
  std::filesystem::path path_of(const BlobName& name) const;
  void read_folder();
  void keep(const BlobName& name, uint64_t version, SharedBlob blob) ATOLL_REQUIRES(mutex_);
  bool is_purged(const BlobName& name, uint64_t version) const ATOLL_REQUIRES(mutex_);
  void write(const BlobName& name, uint64_t version, const Bytes& blob);
  Descriptor part_of(const std::filesystem::path& part) ATOLL_REQUIRES(mutex_);
  void unlink(const std::vector<BlobName>& names) const;

  const BlobStoreOptions options_;
  const std::function<void(const std::string&)> tell_;
  std::optional<Descriptor> lock_;
  mutable Mutex mutex_;
  BlobOrder in_memory_ ATOLL_GUARDED_BY(mutex_);
  BlobOrder on_disk_ ATOLL_GUARDED_BY(mutex_);
  uint64_t last_version_ ATOLL_GUARDED_BY(mutex_) = 0;
  std::map<Digest, uint64_t> purged_ ATOLL_GUARDED_BY(mutex_);  // At which version.
  std::vector<std::filesystem::path> to_remove_ ATOLL_GUARDED_BY(mutex_);
  bool is_told_ ATOLL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::kv
