#pragma once
// A byte stream in TLS 1.3. Private to atoll/net: made by Trust, and for HTTPS (https.h).
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/net/byte_stream.h"

struct ssl_st;  // OpenSSL's SSL.
struct ssl_ctx_st;

namespace atl::net {

/// kCalledToJoin: a coordinator's, which strangers may ask for a certificate. kReading asks a web
/// server, whose certificate names a host: the context says which.
enum class TlsEnd : uint8_t { kCalling, kJoining, kReading, kCalled, kCalledToJoin };

/// What a TLS handshake says it is for. A join is the one for which a caller needs no certificate.
constexpr const char* kLinkProtocol = "atoll";
constexpr const char* kJoinProtocol = "atoll-join";
constexpr const char* kHttpProtocol = "http/1.1";

/// Why the peer is not believed, of one whose certificate the authority signed; empty when it is.
/// Null: that is looked at later, and the peer is told.
using PeerObjection = std::function<std::string(const identity::CertificateFacts&)>;

/// Of a called one, for the callback that chooses the protocol.
bool takes_joins(const ssl_st* ssl);

/// One more run for which an end is called: callers name it by a host, which is no host's.
struct NamedRun {
  std::string host;
  std::string run;
  std::shared_ptr<ssl_ctx_st> context;
};
/// For the callback of the host's name: goes on with the context of the run that the caller names,
/// if it is another than the first.
void choose_run(ssl_st* ssl);

/// Over a socket in the clear, or over another TLS stream that has greeted.
std::unique_ptr<ByteStream> make_tls_stream(std::unique_ptr<ByteStream> ground,
                                            std::shared_ptr<ssl_ctx_st> context, TlsEnd end,
                                            PeerObjection objection,
                                            std::vector<NamedRun> more_runs = {});
/// At a calling end, before it greets: which run it wants. Not of use to who is called.
std::unique_ptr<ByteStream> make_tls_stream_to(const std::string& host,
                                               std::unique_ptr<ByteStream> ground,
                                               std::shared_ptr<ssl_ctx_st> context, TlsEnd end,
                                               PeerObjection objection);

}  // namespace atl::net
