#pragma once
// Files that their owner alone may read: keys, and the book of invites.
#include <filesystem>
#include <string>
#include <string_view>

namespace atl::identity {

inline constexpr size_t kMaxPrivateFileBytes = size_t{16} << 20;

/// Makes the folder with mode 0700, and those that lead to it. Throws InputError where it cannot,
/// or where others may write into one that is there.
void make_private_folder(const std::filesystem::path& folder);

/// A new file with mode 0600, synced, takes the place of what `path` was: a reader sees the old or
/// the new one. Throws InputError.
void write_private_file(const std::filesystem::path& path, std::string_view contents);

/// Throws InputError where group or others may read it, and says what to do; or it is somebody
/// else's.
std::string read_private_file(const std::filesystem::path& path);

}  // namespace atl::identity
