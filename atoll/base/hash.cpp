#include "atoll/base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/number.h"

namespace atl {

struct Sha256::Context {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  ATOLL_CHECK(EVP_DigestInit_ex(context_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  ATOLL_CHECK(EVP_DigestUpdate(context_->context, bytes.data(), bytes.size()) == 1);
  return *this;
}

Sha256& Sha256::update(std::string_view text) { return update(as_byte_span(text)); }

Digest Sha256::finish() {
  Digest digest;
  ATOLL_CHECK(EVP_DigestFinal_ex(context_->context, reinterpret_cast<unsigned char*>(digest.data()),
                                 nullptr) == 1);
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) { return Sha256().update(bytes).finish(); }

Digest tree_digest(std::span<const std::byte> bytes) { return tree_digest(chunk_digests(bytes)); }

std::vector<Digest> chunk_digests(std::span<const std::byte> bytes) {
  std::vector<Digest> chunks;
  for (size_t begin = 0; begin < bytes.size(); begin += kTreeChunkBytes) {
    chunks.push_back(sha256(bytes.subspan(begin, std::min(kTreeChunkBytes, bytes.size() - begin))));
  }
  return chunks;
}

std::vector<Digest> digests_in(std::span<const std::byte> bytes) {
  std::vector<Digest> digests(bytes.size() / sizeof(Digest));
  std::memcpy(digests.data(), bytes.data(), digests.size() * sizeof(Digest));
  return digests;
}

Digest tree_digest(std::span<const Digest> chunks) { return sha256(std::as_bytes(chunks)); }

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

Digest digest_from_hex(std::string_view text) {
  Digest digest;
  const auto bad = [&] {
    return InputError(fmt::format("not a SHA-256 in hexadecimal: '{}'", text.substr(0, 80)));
  };
  if (text.size() != 2 * digest.size()) throw bad();
  for (size_t i = 0; i < digest.size(); ++i) {
    const auto value = number_in<uint8_t>(text.substr(2 * i, 2), 16);
    if (!value) throw bad();
    digest[i] = static_cast<std::byte>(*value);
  }
  return digest;
}

uint64_t xxh3(const void* data, size_t size) { return XXH3_64bits(data, size); }

uint64_t xxh3(std::span<const std::span<const std::byte>> parts) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  ATOLL_CHECK(state != nullptr && XXH3_64bits_reset(state.get()) == XXH_OK);
  for (const auto part : parts) XXH3_64bits_update(state.get(), part.data(), part.size());
  return XXH3_64bits_digest(state.get());
}

}  // namespace atl
