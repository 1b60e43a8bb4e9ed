#pragma once
// Parts of a model as they come from others, on this machine's disk: a folder with the manifest,
// and of each part a file and the hashes of its pieces. What was written is never believed: pieces
// are hashed again whenever a part is wanted, so a process may be killed at any time, and two may
// fill one folder at once (they write the same). A part has the suffix .part until it is whole.
// Owned by one thread.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/model_manifest.h"

namespace atl::weights {

class PartStore {
 public:
  /// The folder's manifest where it is that of the model with this digest, and whole.
  static std::optional<ModelManifest> manifest_in(const std::filesystem::path& folder,
                                                  const std::string& digest);
  /// Of whatever lies there as a manifest. Throws InputError where nothing can be read.
  static std::string digest_in(const std::filesystem::path& folder);
  /// Makes the folder where there is none. Throws InputError, as all of these do where the disk
  /// fails.
  PartStore(std::filesystem::path folder, ModelManifest manifest);

  const ModelManifest& manifest() const { return manifest_; }
  /// Of its pieces; empty where they are not known, or damaged.
  const std::vector<Digest>& hashes(int32_t part);
  void keep_hashes(int32_t part, std::span<const std::byte> hashes);

  /// The pieces of a part that are not here, or not what their hashes say; the hashes are known.
  std::vector<uint32_t> missing(int32_t part);
  /// Of a part with missing pieces.
  void write(int32_t part, uint32_t piece, std::span<const std::byte> bytes);
  /// Nothing is missing of it, as it was found just now: it gets its name.
  void finish(int32_t part);

  /// With these parts, which are whole: memory-mapped.
  std::shared_ptr<const ModelFiles> files(std::span<const int32_t> parts) const;

  uint64_t num_bytes(int32_t part) const;
  /// Where a whole part is.
  std::filesystem::path file(int32_t part) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path unfinished(int32_t part) const;

  std::filesystem::path folder_;
  ModelManifest manifest_;
  std::vector<std::vector<size_t>> tensors_;  // By part.
  std::map<int32_t, std::vector<Digest>> hashes_;
};

}  // namespace atl::weights
