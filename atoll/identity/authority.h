#pragma once
// The authority of a run: the key that says who is a member. Whoever holds its folder decides; its
// fingerprint is the run's name that nobody can forge. Its folder has authority-key.pem (0600),
// authority.pem and revocations.bin. For one thread at a time.
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/result.h"
#include "atoll/identity/key.h"
#include "atoll/identity/peer.h"
#include "atoll/identity/revocation.h"
#include "atoll/identity/wall_time.h"

namespace atl::identity {

class Authority {
 public:
  /// A new one, in memory alone. Throws UsageError where the run's name is none (base/name.h).
  static Authority create(std::string_view run_name, WallTime now);
  /// Throws InputError: something is missing, damaged, or others may read the key.
  static Authority load(const std::filesystem::path& folder);
  /// From encrypted_backup(). Throws InputError: "wrong passphrase or damaged file".
  static Authority restore(std::string_view backup, std::string_view passphrase);

  /// Throws InputError; never over another authority.
  void save(const std::filesystem::path& folder);
  /// All that is needed to go on. Throws UsageError where the passphrase is too short.
  std::string encrypted_backup(std::string_view passphrase) const;

  const std::string& fingerprint() const { return fingerprint_; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  /// As the certificate has it.
  const std::string& run_name() const { return run_name_; }

  /// A member's certificate, in PEM. Fails for a request that proves no key, a peer of another run,
  /// a name that is none, a life that is too long, an authority that has expired.
  Result<std::string> sign(std::string_view request_pem, const PeerId& peer,
                           std::chrono::seconds validity, WallTime now) const;
  /// For the key of a server that readers ask over HTTPS at these hosts (issue.h). Fails as sign()
  /// does, and for a host that is none.
  Result<std::string> sign_web(const Key& server, const std::vector<std::string>& hosts,
                               std::chrono::seconds validity, WallTime now) const;

  const RevocationList& revocations() const { return revocations_; }
  /// For members: revocation.h's verify() reads it.
  Bytes signed_revocations() const { return identity::sign(revocations_, key_); }
  /// Revokes a member with all certificates issued up to now, or one by its serial number. Durable
  /// on return if the authority has a folder. Throws InputError.
  void revoke(Revocation::Kind kind, std::string_view subject, WallTime now);
  /// Takes what another process has added in the folder since.
  void reload_revocations();

 private:
  /// Why no certificate of that life can be signed; empty where one can.
  std::string objection_to(std::chrono::seconds validity, WallTime now) const;
  Authority(Key key, std::string certificate_pem, RevocationList revocations);
  static Authority of_parts(std::string_view key_pem, std::string certificate_pem,
                            std::span<const std::byte> signed_revocations, std::string_view where);

  Key key_;
  std::string certificate_pem_;
  std::string fingerprint_;
  std::string run_name_;
  RevocationList revocations_;
  std::filesystem::path folder_;  // Empty until it is saved or loaded.
};

}  // namespace atl::identity
