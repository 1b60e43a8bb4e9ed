#pragma once
// The weights of a model in its files, safetensors or GGUF: found, checked and memory-mapped, but
// not read. Never changes after opening and may be shared by threads.
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/codec/gguf_file.h"
#include "atoll/weights/config.h"
#include "atoll/weights/safetensors.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

/// As a folder names them.
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndex = "model.safetensors.index.json";

/// In which keys and values are kept.
enum class KvType {
  kAuto,  // BF16 where the weights that make them are stored in less than FP32, else FP32.
  kFp32,
  kBf16,
};

class ModelFiles {
 public:
  /// Of a folder (model.safetensors, or shards with an index) or a GGUF file. Throws InputError
  /// naming the tensor that is missing, unknown, twice there, of another shape or of a type that
  /// cannot be a parameter. A head that is another than the embedding it should be tied to is
  /// refused. A folder with a manifest (our checkpoints) has every tensor's hash checked.
  ModelFiles(const std::filesystem::path& path, const ModelConfig& config);
  /// Of tensors that lie elsewhere, in the order of parameter_specs(); `holder` keeps them there.
  ModelFiles(const ModelConfig& config, std::vector<StoredTensor> tensors,
             std::shared_ptr<const void> holder, KvType kv_type = KvType::kAuto);

  /// In the order of parameter_specs(). Those of a part of the model that is not here have no bytes
  /// (part_store.h).
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  KvType kv_type() const { return kv_type_; }
  /// All of them as FP32, at their places in the flat buffer.
  void read(std::span<float> values_P) const;
  /// The smallest type of safetensors that holds them as they are: F16 or BF16 where all are so,
  /// else F32.
  DType common_type() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<StoredTensor> tensors_;
  std::vector<SafetensorsFile> shards_;
  std::vector<Bytes> joined_;  // What the shards hold in parts.
  std::shared_ptr<const void> holder_;
  KvType kv_type_ = KvType::kAuto;
  std::unique_ptr<codec::GgufFile> gguf_;
};

}  // namespace atl::weights
