#pragma once
// What a model is, to the last bit, in few bytes: its settings, what each tensor is and the hash of
// each part. The manifest's own hash names the model, so who has only the name can check the
// manifest, by it the hashes of a part's pieces, and by those each piece, whoever sends them. Pure;
// manifests come from strangers and are checked as such.
//
// A part is a layer, or (behind them) what is in no layer: its tensors' bytes one behind the other,
// as their files hold them, in the order of parameter_specs(). A piece is a chunk of
// tree_digest().
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/weights/config.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

constexpr int32_t kManifestPart = -1;  // The manifest itself, where pieces are asked for.
constexpr uint64_t kMaxPartBytes = uint64_t{64} << 30;

struct ModelManifest {
  ModelConfig config;
  std::vector<StoredTensor> tensors;  // In the order of parameter_specs(). Without their bytes.
  std::vector<Digest> parts;          // tree_digest() of each.

  int32_t num_parts() const { return static_cast<int32_t>(parts.size()); }
};

/// Equal for equal models, however many files they lie in.
Bytes encode(const ModelManifest& manifest);
/// Throws InputError saying what is wrong: settings that cannot be, tensors that are not those of
/// such a model, rows that do not lie within them.
ModelManifest decode_manifest(std::span<const std::byte> bytes);

/// 64 hexadecimal digits: tree_digest() of the manifest as bytes.
std::string digest_of(std::span<const std::byte> encoded_manifest);

/// The tensors of each part, as places in parameter_specs().
std::vector<std::vector<size_t>> tensors_by_part(const ModelConfig& config);
/// In its file.
uint64_t num_bytes(const StoredTensor& tensor);
/// Of a part with these tensors.
uint64_t part_bytes(const std::vector<StoredTensor>& tensors, std::span<const size_t> part);
constexpr uint32_t num_pieces(uint64_t part_bytes) {
  return static_cast<uint32_t>((part_bytes + kTreeChunkBytes - 1) / kTreeChunkBytes);
}
/// Of piece `piece` of a part of `part_bytes`.
constexpr size_t piece_bytes(uint64_t part_bytes, uint32_t piece) {
  const uint64_t rest = part_bytes - uint64_t{piece} * kTreeChunkBytes;
  return rest < kTreeChunkBytes ? static_cast<size_t>(rest) : kTreeChunkBytes;
}

}  // namespace atl::weights
