#pragma once
// What a member-to-be and the registrar say to each other: one request, one reply, as JSON. Pure,
// thread-safe.
#include <cstddef>
#include <string>
#include <string_view>

#include "atoll/base/result.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/key.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {

inline constexpr size_t kMaxRegistrationBytes = 8192;
inline constexpr size_t kMaxReplyBytes = size_t{64} << 10;

/// Of who comes by an invite. Who has a certificate, and shows it, asks for the next one with
/// neither invite nor name.
struct RegistrationRequest {
  std::string invite_secret;
  std::string name;
  std::string certificate_request;  // Key::request().

  ~RegistrationRequest() { wipe(invite_secret); }
};

struct RegistrationReply {
  std::string certificate_pem;
  std::string authority_pem;
  std::string refusal;  // A sentence; where there is one there is nothing else.
};

std::string encode(const RegistrationRequest& request);
Result<RegistrationRequest> decode_request(std::string_view bytes);

std::string encode(const RegistrationReply& reply);
/// A refusal is a failure, with its sentence made printable.
Result<RegistrationReply> decode_reply(std::string_view bytes);

/// Whether a reply is what `key` asked the run with this fingerprint for: whoever answers could be
/// anybody.
Result<CertificateFacts> check_reply(const RegistrationReply& reply, std::string_view fingerprint,
                                     const Key& key, WallTime now);

}  // namespace atl::identity
