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

constexpr const char* kLock = "lock";
constexpr const char* kPart = ".part";  // Ends what is being written.

std::optional<Digest> digest_named(const fs::path& path) {
  try {
    return digest_from_hex(path.filename().string());
  } catch (const InputError&) {
    return std::nullopt;
  }
}

Descriptor locked(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path path = folder / kLock;
  Descriptor lock(path, O_RDWR | O_CREAT);
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

}  // namespace

std::vector<BlobName> BlobOrder::add(const BlobName& name, int64_t bytes) {
  remove(name);
  if (bytes > max_bytes_) return {name};
  entries_.push_back({name, bytes});
  places_[name] = std::prev(entries_.end());
  bytes_ += bytes;
  std::vector<BlobName> gone;
  while (bytes_ > max_bytes_) {
    gone.push_back(entries_.front().name);
    remove(gone.back());
  }
  return gone;
}

bool BlobOrder::use(const BlobName& name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return false;
  entries_.splice(entries_.end(), entries_, place->second);
  return true;
}

void BlobOrder::remove(const BlobName& name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return;
  bytes_ -= place->second->bytes;
  entries_.erase(place->second);
  places_.erase(place);
}

std::vector<BlobName> BlobOrder::of(const Digest& group) const {
  std::vector<BlobName> found;
  for (auto place = places_.lower_bound({.group = group, .id = {}});
       place != places_.end() && place->first.group == group; ++place) {
    found.push_back(place->first);
  }
  return found;
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
  for (const Found& found : all) unlink(on_disk_.add(found.name, found.bytes));
}

void BlobStore::unlink(const std::vector<BlobName>& names) const {
  if (options_.folder.empty()) return;
  std::error_code none;
  for (const BlobName& name : names) fs::remove(path_of(name), none);
}

void BlobStore::keep(const BlobName& name, Blob blob) {
  const MutexLock lock(mutex_);
  const auto bytes = static_cast<int64_t>(blob->size());
  blobs_[name] = std::move(blob);
  for (const BlobName& gone : in_memory_.add(name, bytes)) blobs_.erase(gone);
}

void BlobStore::put(const BlobName& name, Blob blob) {
  if (!options_.folder.empty()) write(name, *blob);
  keep(name, std::move(blob));
}

/// A reader sees all of the file or none.
void BlobStore::write(const BlobName& name, const Bytes& blob) {
  const fs::path path = path_of(name);
  fs::path part = path;
  {
    const MutexLock lock(mutex_);
    part += fmt::format("-{}{}", ++num_written_, kPart);
  }
  std::error_code none;
  try {
    fs::create_directories(path.parent_path(), none);
    const Descriptor file(part, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.get() < 0) fail_at("write", part);
    write_all(file, blob, part);
    const MutexLock lock(mutex_);
    if (::rename(part.c_str(), path.c_str()) != 0) fail_at("write", path);
    unlink(on_disk_.add(name, static_cast<int64_t>(blob.size())));
  } catch (const InputError& error) {
    fs::remove(part, none);
    const bool is_first = [&] {
      const MutexLock lock(mutex_);
      return !std::exchange(is_told_, true);
    }();
    if (is_first) tell_(fmt::format("keys and values are not kept on disk: {}", error.what()));
  }
}

BlobStore::Blob BlobStore::get(const BlobName& name) {
  {
    const MutexLock lock(mutex_);
    const bool is_on_disk = on_disk_.use(name);
    if (in_memory_.use(name)) return blobs_.at(name);
    if (!is_on_disk) return nullptr;
  }
  return read(name);
}

BlobStore::Blob BlobStore::read(const BlobName& name) {
  const fs::path path = path_of(name);
  try {
    const std::string contents = read_file(path);
    const auto bytes = as_byte_span(contents);
    auto blob = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // Used now, for who comes after a restart.
    keep(name, blob);
    return blob;
  } catch (const InputError&) {  // Somebody has removed it.
    const MutexLock lock(mutex_);
    on_disk_.remove(name);
    return nullptr;
  }
}

bool BlobStore::has(const BlobName& name) const {
  const MutexLock lock(mutex_);
  return in_memory_.has(name) || on_disk_.has(name);
}

void BlobStore::remove(const BlobName& name) {
  const MutexLock lock(mutex_);
  blobs_.erase(name);
  in_memory_.remove(name);
  on_disk_.remove(name);
  unlink({name});
}

void BlobStore::purge(const Digest& group) {
  const MutexLock lock(mutex_);
  for (const BlobName& name : in_memory_.of(group)) {
    blobs_.erase(name);
    in_memory_.remove(name);
  }
  const std::vector<BlobName> files = on_disk_.of(group);
  for (const BlobName& name : files) on_disk_.remove(name);
  unlink(files);
  std::error_code none;
  if (!files.empty()) fs::remove(path_of(files.front()).parent_path(), none);
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
