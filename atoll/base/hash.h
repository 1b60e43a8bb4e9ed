#pragma once
// SHA-256 names content (digests, manifests); xxHash guards frames against accidents.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

using Digest = std::array<std::byte, 32>;

/// SHA-256 of everything fed to update().
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  Digest finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Digest sha256(std::span<const std::byte> bytes);

/// SHA-256 over the SHA-256 of each chunk (the last may be shorter): the digest that members
/// compare before a commit. Chunks can be hashed in parallel and checked one by one.
Digest tree_digest(std::span<const std::byte> bytes);
constexpr size_t kTreeChunkBytes = size_t{1} << 20;
/// The same, of the SHA-256 of each chunk.
Digest tree_digest(std::span<const Digest> chunks);
std::vector<Digest> chunk_digests(std::span<const std::byte> bytes);
/// That lie one behind the other; a part of one at the end is left out.
std::vector<Digest> digests_in(std::span<const std::byte> bytes);

/// 64 hexadecimal digits.
std::string hex(const Digest& digest);
/// The inverse of hex(); throws InputError unless `text` is 64 hexadecimal digits.
Digest digest_from_hex(std::string_view text);

uint64_t xxh3(const void* data, size_t size);
/// Of the parts one after the other.
uint64_t xxh3(std::span<const std::span<const std::byte>> parts);

}  // namespace atl
