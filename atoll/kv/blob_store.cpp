#include "atoll/kv/blob_store.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::kv {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPurged = 4096;
constexpr const char* kLock = "lock";
constexpr const char* kPart = ".part";      // Ends what is being written,
constexpr const char* kPurged = ".purged";  // and what is to be removed.

std::optional<Digest> digest_named(const fs::path& path,
                                   size_t num_digits = fs::path::string_type::npos) {
  try {
    return digest_from_hex(path.filename().string().substr(0, num_digits));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Its owner's alone: what tenants asked is nobody else's.
void make_folder(const fs::path& folder) {
  std::error_code none;
  if (!fs::create_directories(folder, none)) return;
  fs::permissions(folder, fs::perms::owner_all, none);
}

Descriptor opened(const fs::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
}

Descriptor locked(const fs::path& folder) {
  make_folder(folder);
  Descriptor lock = opened(folder / kLock, O_RDWR | O_CREAT);
  if (lock.get() < 0) {
    throw UsageError(fmt::format("cannot keep keys and values in '{}': {}", folder.string(),
                                 std::strerror(errno)));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    throw UsageError(
        fmt::format("'{}' is used by another process: name another folder for keys and values",
                    folder.string()));
  }
  return lock;
}

/// What an entry takes beside its bytes: many small ones are no way around the bound.
constexpr int64_t kEntryBytes = 256;
constexpr int64_t kDiskBlock = 4096;

int64_t bytes_on_disk(int64_t size) {
  return (size + kDiskBlock - 1) / kDiskBlock * kDiskBlock + kEntryBytes;
}

}  // namespace

std::vector<BlobName> BlobOrder::add(Entry entry) {
  remove(entry.name);
  if (entry.bytes > max_bytes_) return {entry.name};
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  places_[entries_.back().name] = std::prev(entries_.end());
  std::vector<BlobName> gone;
  while (bytes_ > max_bytes_) {
    gone.push_back(entries_.front().name);
    remove(gone.back());
  }
  return gone;
}

const BlobOrder::Entry* BlobOrder::use(const BlobName& name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.end(), entries_, place->second);
  return &entries_.back();
}

void BlobOrder::remove(const BlobName& name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return;
  bytes_ -= place->second->bytes;
  entries_.erase(place->second);
  places_.erase(place);
}

void BlobOrder::remove(const Digest& group) {
  auto place = places_.lower_bound({.group = group, .id = {}});
  while (place != places_.end() && place->first.group == group) {
    const BlobName name = place->first;
    ++place;
    remove(name);
  }
}

BlobStore::BlobStore(BlobStoreOptions options, std::function<void(const std::string&)> tell)
    : options_(std::move(options)),
      tell_(std::move(tell)),
      in_memory_(options_.memory_bytes),
      on_disk_(options_.disk_bytes) {
  if (options_.folder.empty()) return;
  lock_ = locked(options_.folder);
  read_folder();
}

fs::path BlobStore::path_of(const BlobName& name) const {
  return options_.folder / hex(name.group) / hex(name.id);
}

/// What was there before, in the order in which it was used. What is not ours is left alone.
void BlobStore::read_folder() {
  struct Found {
    fs::file_time_type used;
    BlobName name;
    int64_t bytes;
  };
  std::vector<Found> all;
  std::error_code none;
  for (const fs::directory_entry& group : fs::directory_iterator(options_.folder, none)) {
    if (group.path().extension() == kPurged && digest_named(group.path(), 2 * sizeof(Digest))) {
      fs::remove_all(group.path(), none);
    }
    const auto group_digest = digest_named(group.path());
    if (!group_digest || !group.is_directory(none)) continue;
    for (const fs::directory_entry& file : fs::directory_iterator(group.path(), none)) {
      if (file.path().extension() == kPart)
        fs::remove(file.path(), none);  // Cut off in the middle.
      const auto id = digest_named(file.path());
      if (!id || !file.is_regular_file(none)) continue;
      const auto bytes = static_cast<int64_t>(file.file_size(none));
      all.push_back({file.last_write_time(none), {.group = *group_digest, .id = *id}, bytes});
    }
  }
  std::ranges::sort(all, {}, &Found::used);
  const MutexLock lock(mutex_);
  for (const Found& found : all) {
    unlink(on_disk_.add({.name = found.name, .bytes = bytes_on_disk(found.bytes)}));
  }
}

/// With folders of groups that have nothing left.
void BlobStore::unlink(const std::vector<BlobName>& names) const {
  if (options_.folder.empty()) return;
  std::error_code none;
  for (const BlobName& name : names) {
    const fs::path path = path_of(name);
    fs::remove(path, none);
    ::rmdir(path.parent_path().c_str());
  }
}

void BlobStore::keep(const BlobName& name, uint64_t version, SharedBlob blob) {
  const auto bytes = static_cast<int64_t>(blob->size()) + kEntryBytes;
  in_memory_.add({.name = name, .bytes = bytes, .version = version, .blob = std::move(blob)});
}

bool BlobStore::is_purged(const BlobName& name, uint64_t version) const {
  const auto purged = purged_.find(name.group);
  return purged != purged_.end() && version <= purged->second;
}

void BlobStore::put(const BlobName& name, SharedBlob blob) {
  uint64_t version = 0;
  {
    const MutexLock lock(mutex_);
    version = ++last_version_;
    keep(name, version, blob);
  }
  if (!options_.folder.empty()) write(name, version, *blob);
}

Descriptor BlobStore::part_of(const fs::path& part) {
  make_folder(part.parent_path());
  Descriptor file = opened(part, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) fail_at("write", part);
  return file;
}

/// A reader sees all of the file or none.
void BlobStore::write(const BlobName& name, uint64_t version, const Bytes& blob) {
  const fs::path path = path_of(name);
  fs::path part = path;
  part += fmt::format("-{}{}", version, kPart);
  try {
    const Descriptor file = [&] {
      const MutexLock lock(mutex_);
      return part_of(part);
    }();
    write_all(file, blob, part);
    const MutexLock lock(mutex_);
    const BlobOrder::Entry* const other = on_disk_.use(name);
    if (is_purged(name, version) || (other != nullptr && other->version > version)) {
      ::unlink(part.c_str());
      ::rmdir(part.parent_path().c_str());
      return;
    }
    if (::rename(part.c_str(), path.c_str()) != 0) fail_at("write", path);
    const int64_t bytes = bytes_on_disk(static_cast<int64_t>(blob.size()));
    unlink(on_disk_.add({.name = name, .bytes = bytes, .version = version}));
  } catch (const InputError& error) {
    ::unlink(part.c_str());
    const bool is_first = [&] {
      const MutexLock lock(mutex_);
      return !std::exchange(is_told_, true);
    }();
    if (is_first) tell_(fmt::format("keys and values are not kept on disk: {}", error.what()));
  }
}

SharedBlob BlobStore::get(const BlobName& name) {
  const fs::path path = path_of(name);
  uint64_t version = 0;
  {
    const MutexLock lock(mutex_);
    const BlobOrder::Entry* const on_disk = on_disk_.use(name);
    // Used now, for who comes after a restart.
    if (on_disk != nullptr) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    if (const auto* const in_memory = in_memory_.use(name)) return in_memory->blob;
    if (on_disk == nullptr) return nullptr;
    version = on_disk->version;
  }
  SharedBlob blob;
  try {
    const std::string contents = read_file(path);
    const auto bytes = as_byte_span(contents);
    blob = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  } catch (const InputError&) {
    blob = nullptr;  // It was removed under way; or nobody can read it, and it is of no use.
  }
  const MutexLock lock(mutex_);
  const BlobOrder::Entry* const still = on_disk_.use(name);
  if (still == nullptr || still->version != version) return nullptr;  // It is another one by now.
  if (blob == nullptr) {
    on_disk_.remove(name);
    unlink({name});
  } else {
    keep(name, version, blob);
  }
  return blob;
}

bool BlobStore::has(const BlobName& name) const {
  const MutexLock lock(mutex_);
  return in_memory_.has(name) || on_disk_.has(name);
}

void BlobStore::remove(const BlobName& name) {
  const MutexLock lock(mutex_);
  in_memory_.remove(name);
  on_disk_.remove(name);
  unlink({name});
}

/// One renaming, so that a kill does not leave some of it.
void BlobStore::purge(const Digest& group) {
  const MutexLock lock(mutex_);
  if (purged_.size() >= kMostPurged) purged_.clear();  // Few are being written.
  purged_[group] = ++last_version_;
  in_memory_.remove(group);
  on_disk_.remove(group);
  if (options_.folder.empty()) return;
  const fs::path folder = options_.folder / hex(group);
  const fs::path away =
      options_.folder / fmt::format("{}-{}{}", hex(group), last_version_, kPurged);
  std::error_code none;
  if (::rename(folder.c_str(), away.c_str()) == 0) {
    to_remove_.push_back(away);
  } else {
    fs::remove_all(folder, none);  // It was not there; or no room is left for another name.
  }
}

void BlobStore::remove_purged() {
  std::vector<fs::path> folders;
  {
    const MutexLock lock(mutex_);
    folders = std::exchange(to_remove_, {});
  }
  std::error_code none;
  for (const fs::path& folder : folders) fs::remove_all(folder, none);
}

int64_t BlobStore::memory_bytes() const {
  const MutexLock lock(mutex_);
  return in_memory_.bytes();
}

int64_t BlobStore::disk_bytes() const {
  const MutexLock lock(mutex_);
  return on_disk_.bytes();
}

}  // namespace atl::kv
