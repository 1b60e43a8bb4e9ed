#pragma once
// The safetensors format: a u64 length, a JSON header, then the tensors' bytes. Files come from
// strangers, so every claim in the header is checked against the file before anyone uses it. Free
// of LibTorch. A SafetensorsFile never changes after opening and may be shared by threads; the
// bytes it hands out live as long as it does.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/codec/ggml_types.h"

namespace atl::weights {

enum class DType { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };
size_t num_bytes(DType type);     // Of one element.
std::string name_of(DType type);  // As the header spells it: "F32", "BF16" ...

struct TensorView {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  /// They lie in a file that is mapped: who has read them may let them rest (base/spilled_array.h).
  bool is_mapped = false;
  /// Nobody changes them any more: a checkpoint is written from where they are.
  bool is_final = false;
};

/// Gives `take` some megabytes of the tensor at a time, in order. What is mapped rests behind it.
void read_in_pieces(const TensorView& tensor,
                    const std::function<void(std::span<const std::byte> piece)>& take);
/// Of the bytes, read so.
Digest tensor_sha256(const TensorView& tensor);

/// Parses and checks a whole file in memory. Throws InputError naming `file` and the tensor: a
/// length or offset outside the file, a size that is not shape x type, overlaps, gaps, an unknown
/// type. Sorted by name.
std::vector<TensorView> parse_safetensors(std::span<const std::byte> contents,
                                          const std::string& file,
                                          std::map<std::string, std::string>* metadata);

/// A file, memory-mapped: opening costs the header only.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null when there is none of that name.
  const TensorView* find(std::string_view name) const;
  /// Throws InputError naming file and tensor when there is none.
  const TensorView& at(std::string_view name) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorView> tensors_;
};

/// Writes and syncs the file; tensors lie in the order given. Throws InputError when the disk is
/// full.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata);

/// Nothing where a model's parameters cannot be of that type.
std::optional<codec::GgmlType> parameter_type(DType type);
/// The type of its values. Throws InputError where they cannot be a model's parameters: only F32,
/// F16 and BF16 can.
codec::GgmlType parameter_type(const TensorView& tensor, const std::string& file);

/// Copies a F32, F16 or BF16 tensor as FP32. Throws InputError for other types, checks the length.
void copy_as_f32(const TensorView& tensor, std::span<float> target, const std::string& file);

/// The bytes of `values` as F32, F16 or BF16, rounded to the nearest, ties to even; too large for
/// F16 becomes infinite. What copy_as_f32() made of a type becomes the same bytes again.
Bytes bytes_as(DType type, std::span<const float> values);

}  // namespace atl::weights
