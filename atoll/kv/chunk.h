#pragma once
// Chunks of texts, as their keys and values are kept: under names, and sealed with keys, that only
// those can make who were told of the chunk by whose text it is. Nobody who keeps a blob can tell
// of which tokens it is, nor confirm a guess.
//
// A gateway has a secret; of that, the tenant, the model and all tokens to the end of a chunk
// follows the chunk's secret, and of that the names and keys of its blobs, one for each part.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/kv/blob_head.h"
#include "atoll/kv/blob_store.h"

namespace atl::kv {

constexpr int64_t kChunkTokens = 128;

struct Chunk {
  Digest secret{};
  Digest check{};  // Of the same tokens, by another key: blobs carry it, sealed.

  bool operator==(const Chunk&) const = default;
};

class ChunkNames {
 public:
  /// `model`: its digest, with the type of its keys and values.
  ChunkNames(const Digest& secret, const std::string& model);

  /// Under which all that is a tenant's is kept.
  Digest group_of(uint64_t tenant) const;
  /// Those that `tokens` fill, the first of them first.
  std::vector<Chunk> chunks_of(uint64_t tenant, std::span<const int64_t> tokens) const;

 private:
  Digest secret_;
  Digest check_;
};

/// Layers of a chunk that are coded together, and how.
struct Part {
  int32_t first_layer = 0;
  int32_t end_layer = 0;  // Before which they end.
  Level level = Level::kExact;
  uint8_t step = 0;
  uint64_t profile = 0;  // Its id; 0: none.

  int32_t num_layers() const { return end_layer - first_layer; }
  bool operator==(const Part&) const = default;
};

BlobName name_of(const Digest& group, const Chunk& chunk, const Part& part);

/// What is kept under that name.
Bytes seal(std::span<const std::byte> blob, const BlobName& name, const Chunk& chunk);
/// Throws InputError where it is damaged, another one's, sealed with another key, or of a chunk of
/// other tokens that has the same secret.
Bytes unseal(std::span<const std::byte> kept, const BlobName& name, const Chunk& chunk);

}  // namespace atl::kv
