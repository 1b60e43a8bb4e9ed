#include "atoll/identity/backup.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <array>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/sealing.h"
#include "atoll/identity/openssl.h"

namespace atl::identity {
namespace {

// On disk: magic | u8 version | u8 log2 of scrypt's N | salt | what is sealed about all that stands
// before it (base/sealing.h).
constexpr std::string_view kMagic = "ATOLLBAK";
constexpr char kVersion = 1;
constexpr int kLog2Cost = 17;
constexpr int kMaxLog2Cost = 20;  // 1 GiB: a file must not ask for all memory.
constexpr uint32_t kBlock = 8;    // scrypt's r; its p is 1.
constexpr size_t kSaltBytes = 16;
constexpr size_t kHeadBytes = kMagic.size() + 2 + kSaltBytes;
constexpr size_t kMaxBackupBytes = size_t{16} << 20;

using OwnedKdf = Owned<EVP_KDF, EVP_KDF_free>;
using OwnedKdfContext = Owned<EVP_KDF_CTX, EVP_KDF_CTX_free>;

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  ATOLL_CHECK(RAND_bytes(unsigned_bytes(bytes), static_cast<int>(size)) == 1);
  return bytes;
}

/// Throws InputError where there is not enough memory.
void derive(std::string_view passphrase, std::string_view salt, int log2_cost, Digest& key) {
  uint64_t cost = uint64_t{1} << log2_cost;
  uint32_t block = kBlock;
  uint32_t lanes = 1;
  uint64_t most_memory = cost * block * 128 * 2;
  const auto octets = [](const char* name, std::string_view text) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(text.data()), text.size());
  };
  const std::array<OSSL_PARAM, 7> parameters = {
      octets(OSSL_KDF_PARAM_PASSWORD, passphrase),
      octets(OSSL_KDF_PARAM_SALT, salt),
      OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_N, &cost),
      OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_R, &block),
      OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_P, &lanes),
      OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_MAXMEM, &most_memory),
      OSSL_PARAM_construct_end()};
  const OwnedKdf kdf(EVP_KDF_fetch(nullptr, "SCRYPT", nullptr));
  ATOLL_CHECK(kdf != nullptr);
  const OwnedKdfContext context(EVP_KDF_CTX_new(kdf.get()));
  if (context == nullptr ||
      EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(key.data()), key.size(),
                     parameters.data()) != 1) {
    throw InputError("no key can be derived from the passphrase: too little memory?");
  }
}

/// Of a passphrase; not left in memory that others get next.
class WipedKey {
 public:
  WipedKey(std::string_view passphrase, std::string_view salt, int log2_cost) {
    derive(passphrase, salt, log2_cost, key_);
  }
  ~WipedKey() { OPENSSL_cleanse(key_.data(), key_.size()); }
  WipedKey(const WipedKey&) = delete;
  WipedKey& operator=(const WipedKey&) = delete;
  const Digest& get() const { return key_; }

 private:
  Digest key_{};
};

}  // namespace

std::string encrypted(std::string_view secret, std::string_view passphrase) {
  ATOLL_CHECK(secret.size() < kMaxBackupBytes / 2);
  if (passphrase.size() < kMinPassphraseBytes) {
    throw UsageError(
        fmt::format("the passphrase is too short: {} characters at least", kMinPassphraseBytes));
  }
  const QuietErrors quiet;
  const std::string salt = random_bytes(kSaltBytes);
  std::string backup(kMagic);
  backup += kVersion;
  backup += static_cast<char>(kLog2Cost);
  backup += salt;
  const WipedKey key(passphrase, salt, kLog2Cost);
  backup += as_text(sealed(as_byte_span(secret), key.get(), as_byte_span(backup)));
  return backup;
}

std::string decrypted(std::string_view backup, std::string_view passphrase) {
  if (!backup.starts_with(kMagic)) throw InputError("this is no backup of an authority");
  const InputError refusal("wrong passphrase or damaged file");
  if (backup.size() < kHeadBytes || backup.size() > kMaxBackupBytes) throw refusal;
  if (backup[kMagic.size()] != kVersion) {
    throw InputError("the backup is damaged, or of a newer version of this program");
  }
  const int log2_cost = backup[kMagic.size() + 1];
  if (log2_cost < 1 || log2_cost > kMaxLog2Cost) throw refusal;
  const QuietErrors quiet;
  const std::string_view head = backup.substr(0, kHeadBytes);
  const std::string_view salt = head.substr(kMagic.size() + 2);
  const WipedKey key(passphrase, salt, log2_cost);
  try {
    Bytes secret = unsealed(as_byte_span(backup.substr(kHeadBytes)), key.get(), as_byte_span(head));
    std::string text(as_text(secret));
    OPENSSL_cleanse(secret.data(), secret.size());
    return text;
  } catch (const InputError&) {
    throw refusal;
  }
}

}  // namespace atl::identity
