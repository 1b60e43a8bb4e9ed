#pragma once
// A model as a GGUF file, as llama.cpp and its users run it: what gguf_model.h reads. Free of
// LibTorch.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/codec/ggml_types.h"
#include "atoll/codec/gguf_writer.h"
#include "atoll/weights/config.h"
#include "atoll/weights/model_files.h"

namespace atl::weights {

/// A tensor of the file. Vectors and learned positions are F32, matrices of the type that was asked
/// for, or F16 where their rows are no whole blocks of it.
struct GgufPart {
  std::string name;
  /// Of parameter_specs(): one, or each expert's, one behind the other. A tied head is the
  /// embedding once more.
  std::vector<size_t> parameters;
  codec::GgmlType type = codec::GgmlType::kF32;
  std::vector<int64_t> shape;  // Of each.
  RowOrder order = {};
  float added = 0;  // See gguf_added().
  bool is_of_experts = false;

  std::vector<int64_t> whole_shape() const;
};
std::vector<GgufPart> gguf_parts(const ModelConfig& config, codec::GgmlType type);

/// How many matrices have become F16 since their rows are no whole blocks.
int64_t num_narrow(const std::vector<GgufPart>& parts, codec::GgmlType type);

/// The model's settings. Throws InputError naming what such files cannot say, or llama.cpp does not
/// compute.
void put_gguf_settings(codec::GgufWriter& file, const ModelConfig& config, const std::string& name,
                       codec::GgmlType type);

/// Calls `put` with the bytes of each tensor, in the file's order and with the padding between
/// them; a tensor at a time is in memory. Llama 3's factors come first, where there are some.
/// Throws InputError naming a tensor with values that its type cannot hold.
void for_each_tensor(const ModelFiles& model, const ModelConfig& config,
                     const std::vector<GgufPart>& parts,
                     const std::function<void(std::span<const std::byte>)>& put);
/// Announces the same tensors.
void put_gguf_tensors(codec::GgufWriter& file, const ModelConfig& config,
                      const std::vector<GgufPart>& parts);

/// What a file says of the model: singles, and a window or none in place of Mistral's name.
ModelConfig as_gguf_says(ModelConfig config);

/// How many values of the file are not the nearest to the model's that their type gives.
int64_t num_changed(const ModelFiles& model, const ModelFiles& file,
                    const std::vector<GgufPart>& parts);

}  // namespace atl::weights
