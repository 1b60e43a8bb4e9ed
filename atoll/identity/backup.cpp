#include "atoll/identity/backup.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <array>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/identity/openssl.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {
namespace {

// On disk: magic | u8 version | u8 log2 of scrypt's N | salt | nonce | what is encrypted | tag. The
// tag is over all that stands before it.
constexpr std::string_view kMagic = "ATOLLBAK";
constexpr char kVersion = 1;
constexpr int kLog2Cost = 17;
constexpr int kMaxLog2Cost = 20;  // 1 GiB: a file must not ask for all memory.
constexpr uint32_t kBlock = 8;    // scrypt's r; its p is 1.
constexpr size_t kSaltBytes = 16;
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
constexpr size_t kKeyBytes = 32;
constexpr size_t kHeadBytes = kMagic.size() + 2 + kSaltBytes + kNonceBytes;
constexpr size_t kMaxBackupBytes = size_t{16} << 20;

using OwnedKdf = Owned<EVP_KDF, EVP_KDF_free>;
using OwnedKdfContext = Owned<EVP_KDF_CTX, EVP_KDF_CTX_free>;
using OwnedCipherContext = Owned<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free>;

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  ATOLL_CHECK(RAND_bytes(unsigned_bytes(bytes), static_cast<int>(size)) == 1);
  return bytes;
}

/// Throws InputError where there is not enough memory.
std::string key_of(std::string_view passphrase, std::string_view salt, int log2_cost) {
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
  std::string key(kKeyBytes, '\0');
  if (context == nullptr ||
      EVP_KDF_derive(context.get(), unsigned_bytes(key), key.size(), parameters.data()) != 1) {
    throw InputError("no key can be derived from the passphrase: too little memory?");
  }
  return key;
}

/// Ready for what is encrypted, or decrypted, behind `head`, whose last bytes are the nonce.
OwnedCipherContext cipher_of(const std::string& key, std::string_view head, bool encrypts) {
  OwnedCipherContext context(EVP_CIPHER_CTX_new());
  const std::string_view nonce = head.substr(head.size() - kNonceBytes);
  int size = 0;
  ATOLL_CHECK(context != nullptr &&
              EVP_CipherInit_ex2(context.get(), EVP_aes_256_gcm(), unsigned_bytes(key),
                                 unsigned_bytes(nonce), encrypts ? 1 : 0, nullptr) == 1 &&
              EVP_CipherUpdate(context.get(), nullptr, &size, unsigned_bytes(head),
                               static_cast<int>(head.size())) == 1);
  return context;
}

std::string turned(EVP_CIPHER_CTX* context, std::string_view input) {
  std::string output(input.size(), '\0');
  int size = 0;
  ATOLL_CHECK(EVP_CipherUpdate(context, unsigned_bytes(output), &size, unsigned_bytes(input),
                               static_cast<int>(input.size())) == 1);
  return output;
}

/// With GCM the end of a cipher adds no bytes.
bool ends_well(EVP_CIPHER_CTX* context) {
  std::array<unsigned char, EVP_MAX_BLOCK_LENGTH> none;
  int size = 0;
  return EVP_CipherFinal_ex(context, none.data(), &size) == 1;
}

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
  backup += salt + random_bytes(kNonceBytes);
  const Secret key(key_of(passphrase, salt, kLog2Cost));
  const OwnedCipherContext context = cipher_of(key.text(), backup, /*encrypts=*/true);
  backup += turned(context.get(), secret);
  std::string tag(kTagBytes, '\0');
  ATOLL_CHECK(ends_well(context.get()) && EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG,
                                                              kTagBytes, tag.data()) == 1);
  return backup + tag;
}

std::string decrypted(std::string_view backup, std::string_view passphrase) {
  if (!backup.starts_with(kMagic)) throw InputError("this is no backup of an authority");
  const InputError refusal("wrong passphrase or damaged file");
  if (backup.size() < kHeadBytes + kTagBytes || backup.size() > kMaxBackupBytes) throw refusal;
  if (backup[kMagic.size()] != kVersion) {
    throw InputError("the backup is damaged, or of a newer version of this program");
  }
  const int log2_cost = backup[kMagic.size() + 1];
  if (log2_cost < 1 || log2_cost > kMaxLog2Cost) throw refusal;
  const QuietErrors quiet;
  const std::string_view head = backup.substr(0, kHeadBytes);
  const std::string_view salt = backup.substr(kMagic.size() + 2, kSaltBytes);
  std::string tag(backup.substr(backup.size() - kTagBytes));
  const Secret key(key_of(passphrase, salt, log2_cost));
  const OwnedCipherContext context = cipher_of(key.text(), head, /*encrypts=*/false);
  const std::string_view body = backup.substr(kHeadBytes, backup.size() - kHeadBytes - kTagBytes);
  std::string secret = turned(context.get(), body);
  ATOLL_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) ==
              1);
  if (!ends_well(context.get())) {
    wipe(secret);
    throw refusal;
  }
  return secret;
}

}  // namespace atl::identity
