#include "atoll/weights/model_parts.h"

#include <algorithm>
#include <utility>

#include "atoll/weights/shared_work.h"

namespace atl::weights {
namespace {

std::vector<StoredTensor> without_bytes(std::vector<StoredTensor> tensors) {
  for (StoredTensor& tensor : tensors) tensor.bytes = {};
  return tensors;
}

Bytes as_bytes(std::span<const Digest> hashes) {
  const auto bytes = std::as_bytes(hashes);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

ModelParts::ModelParts(const ModelConfig& config, std::shared_ptr<const ModelFiles> files,
                       int num_threads, const std::function<void(uint64_t)>& progress)
    : manifest_{.config = canonical(config),
                .tensors = without_bytes(files->tensors()),
                .parts = {}},
      files_(std::move(files)),
      tensors_(tensors_by_part(config)),
      hashes_(tensors_.size()) {
  std::vector<std::pair<int32_t, uint32_t>> pieces;
  for (size_t part = 0; part < tensors_.size(); ++part) {
    const uint32_t count = num_pieces(part_bytes(manifest_.tensors, tensors_[part]));
    hashes_[part].resize(count);
    for (uint32_t i = 0; i < count; ++i) pieces.emplace_back(static_cast<int32_t>(part), i);
  }
  share_work(pieces.size(), num_threads, [&](size_t i) {
    const auto& [part, index] = pieces[i];
    const Bytes piece = read(part, index);
    hashes_[static_cast<size_t>(part)][index] = sha256(piece);
    if (progress) progress(piece.size());
  });
  for (const std::vector<Digest>& part : hashes_) manifest_.parts.push_back(tree_digest(part));
  encoded_ = encode(manifest_);
  digest_ = digest_of(encoded_);
}

ModelParts::ModelParts(ModelManifest manifest, Hashes hashes,
                       std::shared_ptr<const ModelFiles> files)
    : manifest_(std::move(manifest)),
      files_(std::move(files)),
      tensors_(tensors_by_part(manifest_.config)),
      hashes_(std::move(hashes)),
      encoded_(encode(manifest_)),
      digest_(digest_of(encoded_)) {
  hashes_.resize(tensors_.size());
}

std::optional<Bytes> ModelParts::hashes(int32_t part) const {
  if (part == kManifestPart) return as_bytes(chunk_digests(encoded_));
  if (part < 0 || part >= manifest_.num_parts()) return std::nullopt;
  const std::vector<Digest>& hashes = hashes_[static_cast<size_t>(part)];
  if (hashes.empty()) return std::nullopt;
  return as_bytes(hashes);
}

std::optional<Bytes> ModelParts::piece(int32_t part, int64_t index) const {
  if (part < kManifestPart || part >= manifest_.num_parts() || index < 0) return std::nullopt;
  const uint64_t size = part == kManifestPart
                            ? encoded_.size()
                            : part_bytes(manifest_.tensors, tensors_[static_cast<size_t>(part)]);
  if (index >= int64_t{num_pieces(size)}) return std::nullopt;
  if (part == kManifestPart) {
    const auto begin = encoded_.begin() + index * int64_t{kTreeChunkBytes};
    return Bytes(begin,
                 begin + static_cast<int64_t>(piece_bytes(size, static_cast<uint32_t>(index))));
  }
  const bool is_here = std::ranges::all_of(tensors_[static_cast<size_t>(part)], [&](size_t tensor) {
    return !files_->tensors()[tensor].bytes.empty();
  });
  if (!is_here) return std::nullopt;
  return read(part, static_cast<uint32_t>(index));
}

/// From the tensors over which it reaches.
Bytes ModelParts::read(int32_t part, uint32_t index) const {
  const std::vector<size_t>& tensors = tensors_[static_cast<size_t>(part)];
  const size_t size = piece_bytes(part_bytes(manifest_.tensors, tensors), index);
  size_t skip = size_t{index} * kTreeChunkBytes;
  Bytes piece;
  piece.reserve(size);
  for (const size_t tensor : tensors) {
    const std::span<const std::byte> bytes = files_->tensors()[tensor].bytes;
    if (skip >= bytes.size()) {
      skip -= bytes.size();
      continue;
    }
    const auto rest = bytes.subspan(skip, std::min(bytes.size() - skip, size - piece.size()));
    piece.insert(piece.end(), rest.begin(), rest.end());
    skip = 0;
    if (piece.size() == size) break;
  }
  return piece;
}

}  // namespace atl::weights
