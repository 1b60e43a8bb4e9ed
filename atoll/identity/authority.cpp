#include "atoll/identity/authority.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/file_lock.h"
#include "atoll/base/hash.h"
#include "atoll/base/name.h"
#include "atoll/identity/backup.h"
#include "atoll/identity/issue.h"
#include "atoll/identity/openssl.h"
#include "atoll/identity/private_file.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {
namespace fs = std::filesystem;
namespace {

constexpr const char* kKeyFile = "authority-key.pem";
constexpr const char* kCertificateFile = "authority.pem";
constexpr const char* kRevocationsFile = "revocations.bin";

std::string common_name_of(const X509* certificate) {
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  const ASN1_STRING* const text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

bool is_expired(const X509* certificate, WallTime now) {
  std::time_t time = now.time_since_epoch().count();
  return X509_cmp_time(X509_get0_notAfter(certificate), &time) < 0;
}

}  // namespace

Authority::Authority(Key key, std::string certificate_pem, RevocationList revocations)
    : key_(std::move(key)),
      certificate_pem_(std::move(certificate_pem)),
      fingerprint_(hex(sha256(as_byte_span(key_.public_der())))),
      run_name_(common_name_of(certificate_in(certificate_pem_).get())),
      revocations_(std::move(revocations)) {}

Authority Authority::create(std::string_view run_name, WallTime now) {
  if (!is_peer_name(run_name)) {
    throw UsageError(fmt::format(
        "'{}' is no name for a run: 1 to 64 letters, digits, '-', '_', '.'", printable(run_name)));
  }
  const Key key = Key::generate();
  Authority authority(key, authority_certificate(key, run_name, now), {});
  authority.revocations_.run = authority.fingerprint_;
  return authority;
}

Authority Authority::of_parts(std::string_view key_pem, std::string certificate_pem,
                              std::span<const std::byte> signed_revocations,
                              std::string_view where) {
  Key key = Key::from_pem(key_pem, where);
  const auto run = fingerprint_of(certificate_pem);
  if (!run) throw InputError(fmt::format("{}: {}", where, run.error().message));
  if (*run != hex(sha256(as_byte_span(key.public_der())))) {
    throw InputError(fmt::format("{}: the key is not the certificate's", where));
  }
  auto revocations = verify(signed_revocations, certificate_pem);
  if (!revocations) throw InputError(fmt::format("{}: {}", where, revocations.error().message));
  return {std::move(key), std::move(certificate_pem), *std::move(revocations)};
}

Authority Authority::load(const fs::path& folder) {
  const Secret key(read_private_file(folder / kKeyFile));
  const std::string revocations = read_file(folder / kRevocationsFile);
  Authority authority = of_parts(key.text(), read_file(folder / kCertificateFile),
                                 as_byte_span(revocations), folder.string());
  authority.folder_ = folder;
  return authority;
}

void Authority::save(const fs::path& folder) {
  make_private_folder(folder);
  const FileLock lock(folder / kRevocationsFile);
  if (fs::exists(folder / kKeyFile)) {
    throw InputError(fmt::format("'{}' has the key of an authority, which nothing may replace",
                                 folder.string()));
  }
  write_file_atomically(folder / kCertificateFile, certificate_pem_);
  write_private_file(folder / kRevocationsFile, as_text(signed_revocations()));
  const Secret key(key_.pem());
  // Last: a folder that has it has all.
  write_private_file(folder / kKeyFile, key.text());
  folder_ = folder;
}

std::string Authority::encrypted_backup(std::string_view passphrase) const {
  const Secret key(key_.pem());
  Bytes parts = ByteWriter()
                    .put_string(key.text())
                    .put_string(certificate_pem_)
                    .put_string(as_text(signed_revocations()))
                    .take();
  const Secret secret{std::string(as_text(parts))};
  OPENSSL_cleanse(parts.data(), parts.size());
  return encrypted(secret.text(), passphrase);
}

Authority Authority::restore(std::string_view backup, std::string_view passphrase) {
  const Secret secret(decrypted(backup, passphrase));
  ByteReader in(as_byte_span(secret.text()));
  const Secret key(in.get_string(kMaxPemBytes));
  std::string certificate = in.get_string(kMaxPemBytes);
  const std::string revocations = in.get_string(2 * kMaxRevocationBytes);
  in.expect_end();
  return of_parts(key.text(), std::move(certificate), as_byte_span(revocations), "the backup");
}

std::string Authority::objection_to(std::chrono::seconds validity, WallTime now) const {
  if (validity <= std::chrono::seconds(0) || validity > kMaxValidity) {
    return fmt::format("a certificate may be valid for {} days, not longer", kMaxValidity.count());
  }
  return is_expired(certificate_in(certificate_pem_).get(), now)
             ? "the authority's own certificate has expired"
             : "";
}

Result<std::string> Authority::sign_web(const Key& server, const std::vector<std::string>& hosts,
                                        std::chrono::seconds validity, WallTime now) const {
  if (auto why = objection_to(validity, now); !why.empty()) return failure(std::move(why));
  if (hosts.empty()) return failure("a web certificate is for one host at least");
  for (const std::string& host : hosts) {
    if (!is_web_host(host)) {
      return failure(fmt::format("'{}' is no host's name and no IP address", printable(host)));
    }
  }
  return web_certificate(key_, certificate_pem_, server, hosts, validity, now);
}

Result<std::string> Authority::sign(std::string_view request_pem, const PeerId& peer,
                                    std::chrono::seconds validity, WallTime now) const {
  if (peer.run != fingerprint_) return failure("the authority signs for its own run alone");
  if (!is_peer_name(peer.name)) {
    return failure(fmt::format("'{}' is no valid name", printable(peer.name)));
  }
  if (peer.role > Role::kRelay) return failure("there is no such role");
  if (auto why = objection_to(validity, now); !why.empty()) return failure(std::move(why));
  const auto key = public_key_in(request_pem);
  if (!key) return failure(key.error().message);
  return member_certificate(key_, certificate_pem_, request_pem, peer, validity, now);
}

void Authority::revoke(Revocation::Kind kind, std::string_view subject, WallTime now) {
  const auto change = [&] {
    RevocationList changed = revocations_;
    changed.forget_before(now - kMaxValidity);
    changed.add({.kind = kind, .subject = std::string(subject), .when = now});
    // Above all that members may know from before this authority was restored from a backup.
    changed.number = std::max<uint64_t>(changed.number + 1, now.time_since_epoch().count());
    return changed;
  };
  if (folder_.empty()) {
    revocations_ = change();
    return;
  }
  const FileLock lock(folder_ / kRevocationsFile);
  reload_revocations();
  RevocationList changed = change();
  write_private_file(folder_ / kRevocationsFile, as_text(identity::sign(changed, key_)));
  revocations_ = std::move(changed);
}

void Authority::reload_revocations() {
  if (folder_.empty()) return;
  const std::string bytes = read_file(folder_ / kRevocationsFile);
  auto found = verify(as_byte_span(bytes), certificate_pem_);
  if (!found) throw InputError(fmt::format("{}: {}", folder_.string(), found.error().message));
  if (found->number >= revocations_.number) revocations_ = *std::move(found);
}

}  // namespace atl::identity
