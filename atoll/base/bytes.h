#pragma once
// Little-endian bytes, for the wire and the disk. A reader never goes past its end: it throws
// InputError, so a decoder of strangers' bytes needs no checks of its own.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace atl {

static_assert(std::endian::native == std::endian::little, "Atoll's formats are little-endian");

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteWriter {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  ByteWriter& put(T value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof(T));
    return *this;
  }
  ByteWriter& put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  /// A u32 length, then the bytes.
  ByteWriter& put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    return put_bytes(as_byte_span(text));
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  T get() {
    T value;
    std::memcpy(&value, get_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// The next `size` bytes, still owned by the caller's buffer.
  std::span<const std::byte> get_bytes(size_t size);
  /// A u32 length of at most `max_size`, then the bytes.
  std::string get_string(size_t max_size);
  size_t remaining() const { return rest_.size(); }
  /// Throws unless everything was read: trailing bytes mean that the writer meant something else.
  void expect_end() const;

 private:
  std::span<const std::byte> rest_;
};

}  // namespace atl
