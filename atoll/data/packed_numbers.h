#pragma once
// Arrays of little-endian numbers in bytes of any alignment, such as a mapped file has behind its
// header. Views: the bytes must outlive them.
#include <cstring>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"

namespace atl::data {

template <typename T>
class PackedNumbers {
 public:
  PackedNumbers() = default;
  /// A last piece that is no whole number is left out.
  explicit PackedNumbers(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

/// The types of number that published token and index files hold.
enum class NumberType { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };

/// Calls `use` with the bytes as PackedNumbers of their type.
template <typename Use>
decltype(auto) with_numbers(NumberType type, std::span<const std::byte> bytes, const Use& use) {
  switch (type) {
    case NumberType::kU8:
      return use(PackedNumbers<uint8_t>(bytes));
    case NumberType::kI8:
      return use(PackedNumbers<int8_t>(bytes));
    case NumberType::kU16:
      return use(PackedNumbers<uint16_t>(bytes));
    case NumberType::kI16:
      return use(PackedNumbers<int16_t>(bytes));
    case NumberType::kU32:
      return use(PackedNumbers<uint32_t>(bytes));
    case NumberType::kI32:
      return use(PackedNumbers<int32_t>(bytes));
    case NumberType::kI64:
      return use(PackedNumbers<int64_t>(bytes));
  }
  check_failed("a number type", __FILE__, __LINE__);
}

inline size_t number_bytes(NumberType type) {
  return with_numbers(type, {}, [](const auto& numbers) { return sizeof(numbers[0]); });
}

/// numpy's name: "uint8", "int16", ...
inline const char* number_name(NumberType type) {
  constexpr const char* kNames[] = {"uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace atl::data
