#pragma once
// Bytes that lie on a disk and are read and written like memory: an array in a file without a name,
// which is mapped. What is touched is in this process's memory until it is told to rest, so who
// goes through gigabytes and lets them rest behind it needs some megabytes at a time. The system
// writes to the disk what it has no room for. The file goes with the array, however the process
// ends.
//
// May be moved to another thread, and read and rested by several.
#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace atl {

/// The pages that these bytes touch leave this process's memory; the bytes stay as they are, and
/// come back where they are looked at. They lie in a file that is mapped and shared, as a
/// SpilledArray's and a MappedFile's do: elsewhere they would be lost.
void let_rest(std::span<const std::byte> mapped);

class SpilledArray {
 public:
  SpilledArray() = default;
  /// Zeros, in `folder`, which is made if need be. All of it has its place on the disk from the
  /// start: a disk that is full is an error here, and no signal at some later touch. Throws
  /// InputError naming the folder.
  SpilledArray(const std::filesystem::path& folder, size_t size);
  ~SpilledArray();
  SpilledArray(SpilledArray&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SpilledArray& operator=(SpilledArray&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::span<std::byte> bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace atl
