#pragma once
// What files share that are open for long or for a moment: a descriptor that closes itself, and
// errors that name the path.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "atoll/base/error.h"

namespace atl {

/// Throws InputError with the system's reason, from errno.
[[noreturn]] inline void fail_at(const char* what, const std::filesystem::path& path) {
  throw InputError(fmt::format("cannot {} '{}': {}", what, path.string(), std::strerror(errno)));
}

/// Movable; get() < 0 when the file could not be opened, with errno set.
class Descriptor {
 public:
  Descriptor() = default;
  /// One that is open.
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const std::filesystem::path& path, int flags)
      : value_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  int get() const { return value_; }

 private:
  int value_ = -1;
};

inline void write_all(const Descriptor& file, std::span<const std::byte> rest,
                      const std::filesystem::path& path) {
  while (!rest.empty()) {
    const ssize_t put = ::write(file.get(), rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_at("write", path);
    rest = rest.subspan(static_cast<size_t>(put));
  }
}

}  // namespace atl
