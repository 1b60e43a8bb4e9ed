#include "atoll/identity/member_files.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/identity/issue.h"
#include "atoll/identity/private_file.h"

namespace atl::identity {
namespace fs = std::filesystem;
namespace {

constexpr const char* kKeyFile = "key.pem";
constexpr const char* kCertificateFile = "certificate.pem";
constexpr const char* kAuthorityFile = "authority.pem";

}  // namespace

Result<CertificateFacts> check(const Credentials& credentials, WallTime now) {
  auto verified = verified_facts(credentials.certificate_pem, credentials.authority_pem, now);
  if (!verified) return verified;
  try {
    const Key key = Key::from_pem(credentials.key_pem, "the key");
    if (verified->key_hash != hex(sha256(as_byte_span(key.public_der())))) {
      return failure("the certificate is for another key");
    }
  } catch (const InputError& error) {
    return failure(error.what());
  }
  return verified;
}

Key member_key(const fs::path& folder) {
  make_private_folder(folder);
  const fs::path file = folder / kKeyFile;
  if (fs::exists(file)) {
    const Secret pem(read_private_file(file));
    return Key::from_pem(pem.text(), file.string());
  }
  Key key = Key::generate();
  const Secret pem(key.pem());
  write_private_file(file, pem.text());
  return key;
}

void save_reply(const fs::path& folder, const RegistrationReply& reply) {
  const fs::path authority = folder / kAuthorityFile;
  if (!fs::exists(authority)) {
    write_file_atomically(authority, reply.authority_pem);
  } else if (fingerprint_of(read_file(authority)).value_or("") !=
             fingerprint_of(reply.authority_pem).value_or("?")) {
    throw InputError(fmt::format("'{}' is of another run: take another folder for this one",
                                 authority.string()));
  }
  write_file_atomically(folder / kCertificateFile, reply.certificate_pem);
}

Credentials load_credentials(const fs::path& folder, WallTime now) {
  Credentials credentials{.authority_pem = read_file(folder / kAuthorityFile),
                          .certificate_pem = read_file(folder / kCertificateFile),
                          .key_pem = read_private_file(folder / kKeyFile)};
  const auto facts = check(credentials, now);
  if (!facts) throw InputError(fmt::format("{}: {}", folder.string(), facts.error().message));
  return credentials;
}

bool renewal_due(const CertificateFacts& facts, WallTime now) {
  const WallTime issued = facts.not_before + kBackdated;
  return now >= issued + (facts.not_after - issued) / 2;
}

}  // namespace atl::identity
