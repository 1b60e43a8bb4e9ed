#pragma once
// GGUF, llama.cpp's file of a model: named values, then tensors. Files come from strangers, so
// every claim is checked against the file before anyone uses it. Never changes after opening and
// may be shared by threads; what it hands out lives as long as it does.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "atoll/base/file.h"
#include "atoll/codec/ggml_types.h"

namespace atl::codec {

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // Its last one lies together in memory (the file says it first).
  std::span<const std::byte> bytes;

  int64_t num_values() const;
};

/// A list of texts, or of numbers.
struct GgufList {
  std::vector<std::string_view> texts;
  std::vector<double> numbers;
};
using GgufValue = std::variant<int64_t, double, bool, std::string_view, GgufList>;

struct GgufContents {
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;  // In the order of the file.
};

/// Parses and checks a whole file in memory. Throws InputError naming `file` and what is wrong: cut
/// off, a count that the file cannot hold, a type that is not known, tensors over one another.
GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& file);

/// A file, memory-mapped.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  /// Of bytes that live as long as it does; `name` stands for the path.
  GgufFile(std::span<const std::byte> bytes, const std::string& name);
  /// Whether the file begins as such files do.
  static bool is_one(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<GgufTensor>& tensors() const { return contents_.tensors; }
  const GgufTensor* find(std::string_view name) const;  // Null when there is none.

  // Values by key; nothing where there is none. Throw InputError where it is of another kind.
  std::optional<int64_t> whole(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const GgufList* list(std::string_view key) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  template <typename T>
  const T* value(std::string_view key) const;

  std::filesystem::path path_;
  std::optional<MappedFile> file_;
  GgufContents contents_;
};

}  // namespace atl::codec
