#include "atoll/kv/chunk.h"

#include <algorithm>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/sealing.h"

namespace atl::kv {
namespace {

constexpr uint16_t kVersion = 1;  // Of the codec: blobs of another one have other names.

Digest derived(const Digest& key, std::string_view what, std::span<const std::byte> of) {
  ByteWriter writer;
  writer.put_string(what).put_bytes(of);
  return keyed_digest(key, writer.take());
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Bytes about(const BlobName& name) {
  Bytes bytes(name.group.begin(), name.group.end());
  bytes.insert(bytes.end(), name.id.begin(), name.id.end());
  return bytes;
}

}  // namespace

ChunkNames::ChunkNames(const Digest& secret, const std::string& model) {
  ByteWriter writer;
  writer.put(kVersion).put_string(model);
  const Bytes of = writer.take();
  secret_ = derived(secret, "chunks", of);
  check_ = derived(secret, "checks", of);
}

Digest ChunkNames::group_of(uint64_t tenant) const {
  return derived(secret_, "tenant", bytes_of(tenant));
}

std::vector<Chunk> ChunkNames::chunks_of(uint64_t tenant, std::span<const int64_t> tokens) const {
  std::vector<Chunk> chunks;
  Chunk before{.secret = group_of(tenant), .check = derived(check_, "tenant", bytes_of(tenant))};
  for (; std::ssize(tokens) >= kChunkTokens; tokens = tokens.subspan(kChunkTokens)) {
    const auto ids = std::as_bytes(tokens.first(kChunkTokens));
    const auto next = [&](const Digest& key, const Digest& so_far) {
      ByteWriter writer;
      writer.put_bytes(so_far).put_bytes(ids);
      return derived(key, "chunk", writer.take());
    };
    before = {.secret = next(secret_, before.secret), .check = next(check_, before.check)};
    chunks.push_back(before);
  }
  return chunks;
}

BlobName name_of(const Digest& group, const Chunk& chunk, const Part& part) {
  ByteWriter writer;
  writer.put(part.first_layer).put(part.end_layer).put(part.level).put(part.step);
  writer.put(part.profile);
  return {.group = group, .id = derived(chunk.secret, "name", writer.take())};
}

Bytes seal(std::span<const std::byte> blob, const BlobName& name, const Chunk& chunk) {
  Bytes plain(chunk.check.begin(), chunk.check.end());
  plain.insert(plain.end(), blob.begin(), blob.end());
  return sealed(plain, derived(chunk.secret, "key", {}), about(name));
}

Bytes unseal(std::span<const std::byte> kept, const BlobName& name, const Chunk& chunk) {
  Bytes plain = unsealed(kept, derived(chunk.secret, "key", {}), about(name));
  const size_t size = chunk.check.size();
  if (plain.size() < size || !std::equal(chunk.check.begin(), chunk.check.end(), plain.begin())) {
    throw InputError("a blob of keys and values: it is of other tokens");
  }
  plain.erase(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(size));
  return plain;
}

}  // namespace atl::kv
