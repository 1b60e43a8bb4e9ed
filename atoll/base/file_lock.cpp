#include "atoll/base/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace atl {

FileLock::FileLock(const std::filesystem::path& path) {
  std::filesystem::path name = path;
  name += ".lock";
  file_ = Descriptor(
      ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (file_.get() < 0) fail_at("write", name);
  while (::flock(file_.get(), LOCK_EX) != 0) {
    if (errno != EINTR) fail_at("lock", name);
  }
}

}  // namespace atl
