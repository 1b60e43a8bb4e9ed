#include "atoll/base/sealing.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstdint>
#include <memory>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
constexpr size_t kMostBytes = size_t{1} << 30;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using OwnedContext = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* unsigned_bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* writable(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

/// The tag is over `about` and the nonce, too.
OwnedContext begun(const Digest& key, std::span<const std::byte> nonce,
                   std::span<const std::byte> about, bool seals) {
  OwnedContext context(EVP_CIPHER_CTX_new());
  ATOLL_CHECK(context != nullptr &&
              EVP_CipherInit_ex2(context.get(), EVP_aes_256_gcm(), unsigned_bytes(key),
                                 unsigned_bytes(nonce), seals ? 1 : 0, nullptr) == 1);
  for (const auto part : {about, nonce}) {
    int size = 0;
    ATOLL_CHECK(EVP_CipherUpdate(context.get(), nullptr, &size, unsigned_bytes(part),
                                 static_cast<int>(part.size())) == 1);
  }
  return context;
}

void turn(EVP_CIPHER_CTX* context, std::span<const std::byte> from, std::span<std::byte> to) {
  int size = 0;
  ATOLL_CHECK(EVP_CipherUpdate(context, writable(to), &size, unsigned_bytes(from),
                               static_cast<int>(from.size())) == 1);
}

/// With GCM the end of a cipher adds no bytes.
bool ends_well(EVP_CIPHER_CTX* context) {
  std::array<unsigned char, EVP_MAX_BLOCK_LENGTH> none;
  int size = 0;
  return EVP_CipherFinal_ex(context, none.data(), &size) == 1;
}

}  // namespace

Bytes sealed(std::span<const std::byte> plain, const Digest& key,
             std::span<const std::byte> about) {
  ATOLL_CHECK(plain.size() <= kMostBytes && about.size() <= kMostBytes);
  Bytes out(kNonceBytes + plain.size() + kTagBytes);
  const std::span all(out);
  const auto nonce = all.first(kNonceBytes);
  ATOLL_CHECK(RAND_bytes(writable(nonce), kNonceBytes) == 1);
  const OwnedContext context = begun(key, nonce, about, /*seals=*/true);
  turn(context.get(), plain, all.subspan(kNonceBytes, plain.size()));
  ATOLL_CHECK(ends_well(context.get()) &&
              EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                                  all.last(kTagBytes).data()) == 1);
  return out;
}

Bytes unsealed(std::span<const std::byte> sealed_bytes, const Digest& key,
               std::span<const std::byte> about) {
  constexpr size_t kSealBytes = kNonceBytes + kTagBytes;
  if (sealed_bytes.size() < kSealBytes) throw InputError("sealed bytes are cut short");
  if (sealed_bytes.size() > kMostBytes + kSealBytes) throw InputError("sealed bytes are too many");
  const auto nonce = sealed_bytes.first(kNonceBytes);
  const auto body = sealed_bytes.subspan(kNonceBytes, sealed_bytes.size() - kSealBytes);
  Bytes tag(sealed_bytes.end() - kTagBytes, sealed_bytes.end());
  const OwnedContext context = begun(key, nonce, about, /*seals=*/false);
  Bytes plain(body.size());
  turn(context.get(), body, plain);
  ATOLL_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) ==
              1);
  if (ends_well(context.get())) return plain;
  OPENSSL_cleanse(plain.data(), plain.size());
  throw InputError("sealed bytes are of another key, of something else, or were changed");
}

Digest keyed_digest(const Digest& key, std::span<const std::byte> text) {
  Digest digest;
  unsigned int size = 0;
  ATOLL_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), unsigned_bytes(text),
                   text.size(), writable(digest), &size) != nullptr &&
              size == digest.size());
  return digest;
}

Digest random_key() {
  Digest key;
  ATOLL_CHECK(RAND_bytes(writable(key), static_cast<int>(key.size())) == 1);
  return key;
}

}  // namespace atl
