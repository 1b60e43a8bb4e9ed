#pragma once
// Who this process is on the network, and whom it believes: TLS 1.3, with a certificate of the
// run's authority at both ends. What changes meanwhile (a renewed certificate, a member that is
// revoked) changes here, and holds for all connections. Thread-safe.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/base/mutex.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/member_files.h"
#include "atoll/identity/revocation.h"
#include "atoll/net/byte_stream.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX.

namespace atl::net {

/// What TLS adds to each record of at most kRecordBytes: its header, its type and its seal.
constexpr size_t kRecordOverhead = 5 + 1 + 16;

class Trust {
 public:
  /// Throws InputError when the credentials do not fit together.
  explicit Trust(const identity::Credentials& credentials);
  ~Trust();
  Trust(const Trust&) = delete;
  Trust& operator=(const Trust&) = delete;

  /// Whom a join asks: nobody is known but the authority, by its fingerprint. Such a one calls the
  /// join of its run's coordinator, and nothing else.
  static std::unique_ptr<Trust> stranger(const std::string& fingerprint);

  /// New connections use the new certificate; those that stand go on.
  void renew(const identity::Credentials& credentials);
  /// Who is on the list is no longer believed. An older list than the one that is known is ignored.
  void revoke(identity::RevocationList list);
  /// Why a peer is not believed; empty when it is.
  std::string objection(const identity::CertificateFacts& facts) const;

  /// Called after each revoke(), on its thread; by a transport, which then ends connections. Until
  /// the number it returns is given to forget().
  int on_revocation(std::function<void()> callback);
  /// On return it is not being called and will not be.
  void forget(int callback);

  /// The two ends of a connection. Who calls finds out by itself whether it believes the other
  /// side; who is called asks objection() of a caller with a certificate.
  /// It lies over `ground`: a socket in the clear, or a stream to a relay.
  std::unique_ptr<ByteStream> calling_stream(std::unique_ptr<ByteStream> ground) const;
  /// A caller names the run that it means. One of another run than this is taken by that one's
  /// trust, if it is among `more`: the stream then says which.
  std::unique_ptr<ByteStream> called_stream(
      std::unique_ptr<ByteStream> ground, bool takes_joins,
      std::span<const std::shared_ptr<Trust>> more = {}) const;

  /// The fingerprint of its run.
  std::string run() const;

 private:
  using Context = std::shared_ptr<ssl_ctx_st>;
  Trust();
  Context make_context(const identity::Credentials& credentials) const;

  std::string fingerprint_;
  mutable Mutex mutex_;
  std::optional<identity::PeerId> self_ ATOLL_GUARDED_BY(mutex_);
  Context context_ ATOLL_GUARDED_BY(mutex_);
  identity::RevocationList revoked_ ATOLL_GUARDED_BY(mutex_);
  Mutex callbacks_mutex_;  // Held while they are called; mutex_ may be taken under it.
  int last_callback_ ATOLL_GUARDED_BY(callbacks_mutex_) = 0;
  std::map<int, std::function<void()>> callbacks_ ATOLL_GUARDED_BY(callbacks_mutex_);
};

}  // namespace atl::net
