#pragma once
// A GGUF file (version 3), from front to back: named values, then a list of tensors, then their
// bytes. Owned by one thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/codec/ggml_types.h"

namespace atl::codec {

class GgufWriter {
 public:
  void text(std::string_view key, std::string_view value) { begin(key, kText).string(value); }
  void whole(std::string_view key, uint32_t value) { begin(key, kUint32).number(value); }
  void real(std::string_view key, float value) { begin(key, kFloat32).number(value); }
  void flag(std::string_view key, bool value) { begin(key, kBool).number(uint8_t{value}); }
  void texts(std::string_view key, const std::vector<std::string>& all);
  void wholes(std::string_view key, const std::vector<int32_t>& all) { list(key, kInt32, all); }
  void reals(std::string_view key, const std::vector<float>& all) { list(key, kFloat32, all); }
  void bytes(std::string_view key, std::string_view all);

  /// The next tensor. `shape`'s last length is that of what lies together.
  void tensor(std::string_view name, const std::vector<int64_t>& shape, GgmlType type);
  /// All that stands before the first tensor's bytes. Those of each follow in their order, each
  /// with padding_behind() it.
  std::string head() const;
  static std::string padding_behind(size_t num_bytes);

 protected:
  /// A tensor, whatever it is.
  void announce(std::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                size_t num_bytes);

 private:
  enum Kind : uint32_t {
    kUint8 = 0,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kText = 8,
    kList = 9
  };

  GgufWriter& begin(std::string_view key, Kind kind);
  GgufWriter& string(std::string_view value);
  GgufWriter& raw(const void* bytes, size_t count);
  template <typename T>
  GgufWriter& number(T value) {
    return raw(&value, sizeof(value));
  }
  template <typename T>
  void list(std::string_view key, Kind kind, const std::vector<T>& all) {
    begin(key, kList).number(uint32_t{kind}).number(uint64_t{all.size()});
    raw(all.data(), all.size() * sizeof(T));
  }

  std::string values_;
  uint64_t num_values_ = 0;
  std::string tensors_;
  uint64_t num_tensors_ = 0;
  uint64_t data_bytes_ = 0;
};

}  // namespace atl::codec
