#include "atoll/identity/registration.h"

#include <fmt/format.h>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/hash.h"
#include "atoll/base/name.h"

namespace atl::identity {
namespace {

struct RequestFields {
  RegistrationRequest it;
  void visit(auto&& field) {
    field("invite", it.invite_secret, LeftOutWhenNew{}), field("name", it.name, LeftOutWhenNew{});
    field("request", it.certificate_request);
  }
};

struct ReplyFields {
  RegistrationReply it;
  void visit(auto&& field) {
    field("certificate", it.certificate_pem, LeftOutWhenNew{});
    field("authority", it.authority_pem, LeftOutWhenNew{});
    field("refusal", it.refusal, LeftOutWhenNew{});
  }
};

/// Names may be any bytes of a caller's: what is no UTF-8 must not throw.
std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string encode(const RegistrationRequest& request) {
  return dumped(json_of(RequestFields{request}));
}

Result<RegistrationRequest> decode_request(std::string_view bytes) {
  if (bytes.size() > kMaxRegistrationBytes) return failure("the request is too long");
  try {
    return struct_in<RequestFields>(bytes, "the request").it;
  } catch (const InputError& error) {
    return failure(error.what());
  }
}

std::string encode(const RegistrationReply& reply) { return dumped(json_of(ReplyFields{reply})); }

Result<RegistrationReply> decode_reply(std::string_view bytes) {
  if (bytes.size() > kMaxReplyBytes) return failure("the reply is too long");
  try {
    RegistrationReply reply = struct_in<ReplyFields>(bytes, "the reply").it;
    if (!reply.refusal.empty()) return failure(printable(reply.refusal));
    return reply;
  } catch (const InputError& error) {
    return failure(error.what());
  }
}

Result<CertificateFacts> check_reply(const RegistrationReply& reply, std::string_view fingerprint,
                                     const Key& key, WallTime now) {
  const auto run = fingerprint_of(reply.authority_pem);
  if (!run) return failure("the reply is no registrar's: " + run.error().message);
  if (*run != fingerprint) {
    return failure(fmt::format(
        "the reply is of another run, with the fingerprint {}, not {}: somebody else answers there",
        *run, printable(fingerprint)));
  }
  auto facts = verified_facts(reply.certificate_pem, reply.authority_pem, now);
  if (facts && facts->key_hash != hex(sha256(as_byte_span(key.public_der())))) {
    return failure("the reply has a certificate for another key");
  }
  return facts;
}

}  // namespace atl::identity
