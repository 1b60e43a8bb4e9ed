#pragma once
// In what types a model's layers compute and keep what they computed, other than those its files
// ask for: fewer bits, so that more fits into memory. Pure, thread-safe.
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
/// "auto", "fp32", "bf16".
std::span<const std::string_view> names_of(KvType);

struct ServedAs {
  ServedType type = ServedType::kAuto;
  KvType kv = KvType::kAuto;

  /// Throws UsageError naming the option.
  static ServedAs of_options(std::string_view dtype, std::string_view kv_dtype);
  /// What stands behind a digest's first '+' ("int8", "kv-fp32", "int8+kv-fp32"); nothing where it
  /// is unknown here.
  static std::optional<ServedAs> parse(std::string_view text);
  bool operator==(const ServedAs&) const = default;
};

/// What becomes of a tensor, without its bytes. Matrices of layers are converted, but for those
/// that take no more memory as they are, a router's, and those whose inputs are no multiple of 32:
/// they, vectors, the embedding and the head stay as stored.
StoredTensor as_served(const StoredTensor& tensor, const ParameterSpec& spec, ServedType type);

/// What names a model that computes so: other numbers come of it, so it is another model. The
/// digest where all is as it would be anyway, else "DIGEST+int8", "DIGEST+kv-fp32",
/// "DIGEST+int8+kv-fp32".
std::string digest_as_served(const std::string& digest, const ModelConfig& config,
                             const std::vector<StoredTensor>& tensors, ServedAs as);

/// Whether keys and values are kept in BF16: see KvType.
bool keeps_narrow_kv(const ModelConfig& config, std::span<const StoredTensor> tensors, ServedAs as);

/// The files with what as_served() says of the layers from `begin` to before `end`, converted
/// matrix after matrix by as many threads: beside the result and the files, which are
/// memory-mapped, it needs memory for a row of each thread's (a matrix where files have a row for
/// each input). Values that are not finite spoil their block.
std::shared_ptr<const ModelFiles> as_served(const ModelConfig& config,
                                            std::shared_ptr<const ModelFiles> files, ServedAs as,
                                            int64_t begin, int64_t end, int num_threads);

}  // namespace atl::weights
