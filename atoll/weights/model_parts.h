#pragma once
// What of a model is here, for servers that lack it: the manifest, the hashes of each part's
// pieces, and the pieces. Never changes; thread-safe.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/model_manifest.h"

namespace atl::weights {

class ModelParts {
 public:
  using Hashes = std::vector<std::vector<Digest>>;  // Of each piece, by part; empty: unknown.

  /// Of all of a model: every byte is read once, by as many threads. `progress` is told of bytes,
  /// by any of them.
  ModelParts(const ModelConfig& config, std::shared_ptr<const ModelFiles> files, int num_threads,
             const std::function<void(uint64_t)>& progress = {});
  /// Of some parts; their tensors have bytes.
  ModelParts(ModelManifest manifest, Hashes hashes, std::shared_ptr<const ModelFiles> files);

  const ModelManifest& manifest() const { return manifest_; }
  const std::shared_ptr<const ModelFiles>& files() const { return files_; }
  /// digest_of() the manifest.
  const std::string& digest() const { return digest_; }
  /// SHA-256 of each piece of a part, one behind the other; kManifestPart: of the manifest. Nothing
  /// where they are not known.
  std::optional<Bytes> hashes(int32_t part) const;
  /// Nothing where it is not here, or there is none.
  std::optional<Bytes> piece(int32_t part, int64_t index) const;

 private:
  Bytes read(int32_t part, uint32_t index) const;

  ModelManifest manifest_;
  std::shared_ptr<const ModelFiles> files_;
  std::vector<std::vector<size_t>> tensors_;  // By part.
  Hashes hashes_;
  Bytes encoded_;
  std::string digest_;
};

}  // namespace atl::weights
