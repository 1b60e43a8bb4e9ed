#include "atoll/identity/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atoll/base/bytes.h"
#include "atoll/base/descriptor.h"
#include "atoll/base/file.h"
#include "atoll/base/random.h"

namespace atl::identity {
namespace fs = std::filesystem;
namespace {

/// Never one that is there: it could be open elsewhere, or a link to somewhere else.
Descriptor new_private_file(const fs::path& path) {
  return Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                           S_IRUSR | S_IWUSR));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

void make_private_folder(const fs::path& folder) {
  std::error_code ignored;  // mkdir() says it.
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), ignored);
  if (::mkdir(folder.c_str(), S_IRWXU) == 0) return;
  if (errno != EEXIST) fail_at("make", folder);
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) fail_at("read", folder);
  if (!S_ISDIR(status.st_mode)) {
    throw InputError(fmt::format("'{}' is no folder", folder.string()));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw InputError(fmt::format("others may write into '{}', which is for secrets: chmod 700 '{}'",
                                 folder.string(), folder.string()));
  }
}

void write_private_file(const fs::path& path, std::string_view contents) {
  fs::path temporary = path;
  temporary += fmt::format(".{}.tmp", random_name());
  const Descriptor file = new_private_file(temporary);
  if (file.get() < 0) fail_at("write", path);
  try {
    write_all(file, as_byte_span(contents), path);
    if (::fsync(file.get()) != 0) fail_at("sync", path);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_at("write", path);
  } catch (const InputError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

std::string read_private_file(const fs::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);  // Opening a pipe must not wait.
  if (file.get() < 0) fail_at("read", path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail_at("read", path);
  if (!S_ISREG(status.st_mode)) {
    throw InputError(fmt::format("cannot read '{}': not a regular file", path.string()));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw InputError(fmt::format("'{}' is a secret that others may read: chmod 600 '{}'",
                                 path.string(), path.string()));
  }
  if (status.st_uid != ::geteuid() && ::geteuid() != 0) {
    throw InputError(fmt::format("'{}' is a secret of another user", path.string()));
  }
  if (static_cast<size_t>(status.st_size) > kMaxPrivateFileBytes) {
    throw InputError(fmt::format("'{}' is too large", path.string()));
  }
  std::string contents(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = ::read(file.get(), contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_at("read", path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  contents.resize(done);
  return contents;
}

}  // namespace atl::identity
