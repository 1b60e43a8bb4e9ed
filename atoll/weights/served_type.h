#pragma once
// In what type a model's layers compute, other than that of its files: fewer bits a weight, so that
// more layers fit into memory. Pure, thread-safe.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

enum class ServedType {
  kAuto,  // As stored.
  kBf16,
  kInt8,  // GGUF's Q8_0: a scale for 32 weights, 8.5 bits each.
  kInt4,  // Q4_0: likewise, 4.5 bits.
};
/// "auto", "bf16", "int8", "int4": in the order of the enumerators.
std::span<const std::string_view> names_of(ServedType);
std::optional<ServedType> served_type(std::string_view name);

/// What becomes of a tensor, without its bytes. Matrices of layers are converted, but for those
/// that take no more memory as they are, a router's, and those whose inputs are no multiple of 32:
/// they, vectors, the embedding and the head stay as stored.
StoredTensor as_served(const StoredTensor& tensor, const ParameterSpec& spec, ServedType type);

/// What names a model that computes so: other numbers come of it, so it is another model. The
/// digest where nothing is converted, else "DIGEST+int8".
std::string digest_as_served(const std::string& digest, const ModelConfig& config,
                             const std::vector<StoredTensor>& tensors, ServedType type);

/// Whether keys and values are kept as bfloat16s: where the weights that make them are stored in
/// less than FP32, whoever computes so.
bool keeps_narrow_kv(const ModelConfig& config, std::span<const StoredTensor> tensors,
                     ServedType type = ServedType::kAuto);

/// The files with what as_served() says of the layers from `begin` to before `end`, converted
/// matrix after matrix by as many threads: beside the result and the files, which are
/// memory-mapped, it needs memory for a row of each thread's (a matrix where files have a row for
/// each input). Values that are not finite spoil their block.
std::shared_ptr<const ModelFiles> as_served(const ModelConfig& config,
                                            std::shared_ptr<const ModelFiles> files,
                                            ServedType type, int64_t begin, int64_t end,
                                            int num_threads);

}  // namespace atl::weights
