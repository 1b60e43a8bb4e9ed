#include "atoll/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <ranges>
#include <system_error>
#include <utility>

#include "atoll/base/descriptor.h"
#include "atoll/base/error.h"

namespace atl {
namespace {

size_t regular_size(const Descriptor& file, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail_at("read", path);
  if (!S_ISREG(status.st_mode)) {
    throw InputError(fmt::format("cannot read '{}': not a regular file", path.string()));
  }
  return static_cast<size_t>(status.st_size);
}

/// `shown` appears in messages: a user knows nothing of temporary names.
void write_synced(const std::filesystem::path& path, const std::filesystem::path& shown,
                  const std::function<void(const Append&)>& write) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) fail_at("write", shown);
  write([&](std::span<const std::byte> piece) { write_all(file, piece, shown); });
  if (::fsync(file.get()) != 0) fail_at("sync", shown);
}

/// Where a file that is replaced as a whole is written first, and what it then replaces.
struct Replacement {
  explicit Replacement(std::filesystem::path path) : target(std::move(path)), temporary(target) {
    temporary += ".tmp";
  }
  std::filesystem::path target;
  std::filesystem::path temporary;
};

/// Nothing where `path` is a device, a pipe or a link to nothing: renaming over it would destroy
/// it. (A folder, too: opening it for writing is refused.)
std::optional<Replacement> replacement_of(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code unresolved;
  const bool is_link = fs::is_symlink(fs::symlink_status(path, unresolved));
  const fs::file_type type = fs::status(path, unresolved).type();  // Of what a link leads to.
  const bool is_new = type == fs::file_type::not_found && !is_link;
  if (type != fs::file_type::regular && !is_new) return std::nullopt;
  // Renaming over a link would replace the link: write what it leads to.
  return Replacement(is_link ? fs::canonical(path) : path);
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);  // Opening a pipe must not wait for a writer.
  if (file.get() < 0) fail_at("read", path);
  std::string contents(regular_size(file, path), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = ::read(file.get(), contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_at("read", path);
    if (got == 0) break;  // The file shrank while we read it: keep what there is.
    done += static_cast<size_t>(got);
  }
  contents.resize(done);
  return contents;
}

void write_file_synced(const std::filesystem::path& path,
                       const std::function<void(const Append&)>& write) {
  write_synced(path, path, write);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  const std::span<const std::byte> piece =
      std::as_bytes(std::span(contents.data(), contents.size()));
  const auto file = replacement_of(path);
  if (!file) {
    const Descriptor stream(path, O_WRONLY | O_CREAT);
    if (stream.get() < 0) fail_at("write", path);
    return write_all(stream, piece, path);
  }
  try {
    write_synced(file->temporary, path, [&](const Append& append) { append(piece); });
    if (::rename(file->temporary.c_str(), file->target.c_str()) != 0) fail_at("write", path);
  } catch (const InputError&) {
    ::unlink(file->temporary.c_str());
    throw;
  }
  sync_folder(file->target.has_parent_path() ? file->target.parent_path() : ".");
}

void require_writable(const std::filesystem::path& path) {
  const auto file = replacement_of(path);
  if (!file) {
    // Not opened: a pipe would wait for its reader, or tell it that all is written.
    if (std::filesystem::is_directory(path)) errno = EISDIR;
    if (std::filesystem::is_directory(path) || ::access(path.c_str(), W_OK) != 0) {
      fail_at("write", path);
    }
    return;
  }
  const Descriptor trial(file->temporary, O_WRONLY | O_CREAT);
  if (trial.get() < 0) fail_at("write", path);
  ::unlink(file->temporary.c_str());
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.get() < 0 || ::fsync(directory.get()) != 0) fail_at("sync", folder);
}

void remove_files(std::span<const std::filesystem::path> files) {
  for (const std::filesystem::path& file : files) {
    std::error_code ignored;  // A file too many does no harm.
    std::filesystem::remove(file, ignored);
  }
}

std::vector<std::filesystem::path> folders_of_path() {
  const char* path = std::getenv("PATH");
  std::vector<std::filesystem::path> folders;
  for (const auto folder : std::views::split(std::string_view(path == nullptr ? "" : path), ':')) {
    folders.emplace_back(folder.begin(), folder.end());
  }
  return folders;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  if (file.get() < 0) fail_at("read", path);
  const size_t size = regular_size(file, path);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail_at("map", path);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace atl
