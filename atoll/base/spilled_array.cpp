#include "atoll/base/spilled_array.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>

#include "atoll/base/descriptor.h"
#include "atoll/base/error.h"

namespace atl {
namespace {

Descriptor unnamed_file(const std::filesystem::path& folder) {
  std::error_code ignored;  // Where there is no folder no file can be opened, which says why.
  std::filesystem::create_directories(folder, ignored);
  std::string name = (folder / "spilled-XXXXXX").string();
  Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) fail_at("make a file in", folder);
  ::unlink(name.c_str());  // A kill in between leaves an empty one.
  return file;
}

void take_room(const Descriptor& file, size_t size, const std::filesystem::path& folder) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size));
  if (error == 0) return;
  throw InputError(fmt::format(
      "cannot set {:.1f} MB aside on the disk of '{}': {}; make room there, or name a folder on "
      "another disk",
      static_cast<double>(size) / 1e6, folder.string(), std::strerror(error)));
}

}  // namespace

void let_rest(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(mapped.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(mapped.data()) + mapped.size();
  // Pages at the ends that others look at, too, come back to them. Where it does not work nothing
  // is lost but memory.
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

SpilledArray::SpilledArray(const std::filesystem::path& folder, size_t size) {
  if (size == 0) return;
  const Descriptor file = unnamed_file(folder);
  take_room(file, size, folder);
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) fail_at("map a file in", folder);
  bytes_ = {static_cast<std::byte*>(memory), size};
}

SpilledArray::~SpilledArray() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace atl
