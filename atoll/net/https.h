#pragma once
// Both ends of HTTPS, for readers from anywhere: TLS 1.3, a server that shows a certificate of the
// run's authority for the host that it is asked by, and clients that may show one.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/base/mutex.h"
#include "atoll/base/result.h"
#include "atoll/identity/member_files.h"
#include "atoll/net/address.h"
#include "atoll/net/byte_stream.h"

struct ssl_ctx_st;

namespace atl::net {

/// The server's end. Thread-safe.
class HttpsHost {
 public:
  /// With a web certificate (identity/issue.h). Throws InputError where they do not fit together.
  explicit HttpsHost(const identity::Credentials& credentials) { renew(credentials); }
  /// With a certificate of any authority, and what it needs behind it in its file, for clients that
  /// show none. Throws InputError where a file cannot be used.
  static std::shared_ptr<const HttpsHost> of_files(const std::filesystem::path& certificate,
                                                   const std::filesystem::path& private_key);

  /// For new connections.
  void renew(const identity::Credentials& credentials);

  /// Whoever calls may show a certificate, and need not. One that the authority did not sign, or
  /// that is out of its time, ends the greeting; whether a member is still believed is asked later.
  std::unique_ptr<ByteStream> called_stream(Descriptor socket) const;

 private:
  HttpsHost() = default;

  mutable Mutex mutex_;
  std::shared_ptr<ssl_ctx_st> context_ ATOLL_GUARDED_BY(mutex_);
};

/// The client's end: whom it believes, and what it shows.
struct HttpsIdentity {
  /// The authority that must have signed the server's certificate: in PEM, or, where that is
  /// empty, by its fingerprint.
  std::string authority_pem;
  std::string fingerprint;
  /// A member's, if it shows one.
  std::optional<identity::Credentials> member;
  /// A reader's token; empty: none. It is sent to who has proved to be the host, and nobody else.
  std::string token;

  ~HttpsIdentity() { identity::wipe(token); }
};

/// To the host of that address. `who` must outlive the stream. Throws InputError where a
/// certificate cannot be used.
std::unique_ptr<ByteStream> asking_stream(Descriptor socket, const Address& server,
                                          const HttpsIdentity& who);

}  // namespace atl::net
