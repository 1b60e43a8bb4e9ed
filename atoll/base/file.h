#pragma once
// Files as Atoll uses them: whole reads, memory maps, and writes that survive a power cut.
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// The whole file. Throws InputError naming the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Writes `contents` to a temporary name beside `path`, syncs and renames: a reader sees the old
/// file or the new one. Follows links; writes straight into what is not a file (/dev/stdout, a
/// pipe). Throws InputError (the old file stays) when the disk is full or not writable.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

/// Throws InputError as write_file_atomically() would, before the work that makes the contents.
void require_writable(const std::filesystem::path& path);

using Append = std::function<void(std::span<const std::byte>)>;
/// Writes and syncs a file that nobody reads yet (inside a folder that will be renamed): what
/// `write` appends, one piece behind the other.
void write_file_synced(const std::filesystem::path& path,
                       const std::function<void(const Append&)>& write);

/// Makes the names inside `folder` durable.
void sync_folder(const std::filesystem::path& folder);

/// Removes those that it can.
void remove_files(std::span<const std::filesystem::path> files);

/// The folders that PATH names, in its order.
std::vector<std::filesystem::path> folders_of_path();

/// A read-only memory map of a whole file. Movable; unmapped when destroyed.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace atl
