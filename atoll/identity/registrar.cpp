#include "atoll/identity/registrar.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/name.h"
#include "atoll/identity/events.h"

namespace atl::identity {
namespace {

constexpr std::chrono::seconds kBetweenHeldBackTold{60};

RegistrationReply refusal_of(std::string sentence) { return {.refusal = std::move(sentence)}; }

}  // namespace

Registrar::Registrar(Authority& authority, InviteBook& book, Options options, EventSink tell)
    : authority_(authority), book_(book), options_(options), tell_(std::move(tell)) {}

std::string Registrar::answer(std::string_view request, const Caller& caller, WallTime now) {
  try {
    return encode(reply_to(request, caller, now));
  } catch (const InputError& error) {  // A file of ours: it is nothing that a stranger may read.
    tell_(RegistrarFailed{.reason = printable(error.what())});
    return encode(refusal_of("no certificate can be given at the moment: try again later"));
  }
}

RegistrationReply Registrar::reply_to(std::string_view bytes, const Caller& caller, WallTime now) {
  // Before anything is read: a guess must cost as little as can be.
  if (!caller.certificate && !guesses_.allows(caller.address, now)) return hold_back(caller, now);
  const auto request = decode_request(bytes);
  if (!request) {
    const std::string why = printable(request.error().message);
    return refuse(caller, {.to_stranger = why, .to_log = why, .is_guess = true}, now);
  }
  const auto key = public_key_in(request->certificate_request);
  if (!key) {
    return refuse(
        caller,
        {.to_stranger = key.error().message, .to_log = key.error().message, .is_guess = true}, now);
  }
  const std::string key_hash = hex(sha256(as_byte_span(*key)));
  return request->invite_secret.empty() ? renew(*request, key_hash, caller, now)
                                        : register_member(*request, key_hash, caller, now);
}

RegistrationReply Registrar::register_member(const RegistrationRequest& request,
                                             const std::string& key_hash, const Caller& caller,
                                             WallTime now) {
  if (!guesses_.allows(caller.address, now)) return hold_back(caller, now);
  const auto grant = book_.redeem(request.invite_secret, request.name, key_hash, now);
  if (!grant) return refuse(caller, grant.error(), now);
  const PeerId peer{.run = authority_.fingerprint(), .role = grant->role, .name = request.name};
  auto reply = certified(request, peer, now);
  if (!reply) {
    return refuse(caller, {.to_stranger = reply.error().message, .to_log = reply.error().message},
                  now);
  }
  tell_(MemberRegistered{.member = peer.name,
                         .role = std::string(name_of(peer.role)),
                         .invite = grant->invite_id,
                         .address = printable(caller.address),
                         .is_again = grant->is_again});
  return *std::move(reply);
}

RegistrationReply Registrar::renew(const RegistrationRequest& request, const std::string& key_hash,
                                   const Caller& caller, WallTime now) {
  const auto no = [&](const std::string& why, bool is_guess = false) {
    return refuse(caller, {.to_stranger = why, .to_log = why, .is_guess = is_guess}, now);
  };
  if (!caller.certificate) return no("neither an invite nor a certificate", /*is_guess=*/true);
  const CertificateFacts& facts = *caller.certificate;
  if (facts.peer.run != authority_.fingerprint()) return no("the certificate is of another run");
  authority_.reload_revocations();
  if (authority_.revocations().is_revoked(facts)) return no("the certificate is revoked");
  if (now > facts.not_after) return no("the certificate has expired: ask for a new invite");
  if (!request.name.empty() && request.name != facts.peer.name) {
    return no("a certificate is renewed for the name that it has");
  }
  auto reply = certified(request, facts.peer, now);
  if (!reply) return no(reply.error().message);
  if (!book_.hold(facts.peer, key_hash)) return no("the name is held in another role by now");
  tell_(
      CertificateRenewed{.member = facts.peer.name, .role = std::string(name_of(facts.peer.role))});
  return *std::move(reply);
}

Result<RegistrationReply> Registrar::certified(const RegistrationRequest& request,
                                               const PeerId& peer, WallTime now) const {
  auto certificate = authority_.sign(request.certificate_request, peer, options_.validity, now);
  if (!certificate) return failure(std::move(certificate.error().message));
  return RegistrationReply{.certificate_pem = *std::move(certificate),
                           .authority_pem = authority_.certificate_pem()};
}

RegistrationReply Registrar::refuse(const Caller& caller, const Refusal& refusal, WallTime now) {
  if (refusal.is_guess) guesses_.count(caller.address, now);
  tell_(RegistrationRefused{.address = printable(caller.address),
                            .reason = printable(refusal.to_log)});
  return refusal_of(refusal.to_stranger);
}

RegistrationReply Registrar::hold_back(const Caller& caller, WallTime now) {
  ++num_held_back_;
  if (now >= held_back_told_ + kBetweenHeldBackTold || now < held_back_told_) {
    tell_(GuessesHeldBack{.address = printable(caller.address), .requests = num_held_back_});
    held_back_told_ = now;
  }
  return refusal_of("too many attempts: wait a minute");
}

std::string Registrar::invite(const InviteTerms& terms, WallTime now) {
  std::string secret = book_.add(terms, now);
  tell_(MemberInvited{.invite = invite_id(secret),
                      .role = std::string(name_of(terms.role)),
                      .uses = terms.uses,
                      .until = text_of(terms.expiry)});
  return secret;
}

void Registrar::revoke(Revocation::Kind kind, std::string_view subject, WallTime now) {
  // The name is free only when who had it is out.
  authority_.revoke(kind, subject, now);
  if (kind == Revocation::Kind::kPeer) book_.release(subject);
  tell_(MemberRevoked{.subject = printable(subject),
                      .number = static_cast<int64_t>(authority_.revocations().number)});
}

}  // namespace atl::identity
