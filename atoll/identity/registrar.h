#pragma once
// Who asks for a certificate, and gets it: by an invite, or by the certificate it has. Bytes and
// time in, bytes out; whoever owns a socket calls answer(). For one thread.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/base/event.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/guess_limit.h"
#include "atoll/identity/invite_book.h"
#include "atoll/identity/registration.h"

namespace atl::identity {

struct Caller {
  std::string address;  // The host, without its port.
  /// Of the certificate with which its connection is authenticated, if it has one.
  std::optional<CertificateFacts> certificate;
};

class Registrar {
 public:
  struct Options {
    std::chrono::seconds validity = std::chrono::hours(24);
  };

  /// The authority and the book must outlive it.
  Registrar(Authority& authority, InviteBook& book, Options options, EventSink tell);

  /// The reply to a RegistrationRequest. Never throws for what strangers say.
  std::string answer(std::string_view request, const Caller& caller, WallTime now);

  /// InviteBook::add(), told. Returns the secret.
  std::string invite(const InviteTerms& terms, WallTime now);
  /// Authority::revoke(), told. A member's name is free again, for who comes by a new invite.
  void revoke(Revocation::Kind kind, std::string_view subject, WallTime now);

 private:
  RegistrationReply reply_to(std::string_view bytes, const Caller& caller, WallTime now);
  RegistrationReply register_member(const RegistrationRequest& request, const std::string& key_hash,
                                    const Caller& caller, WallTime now);
  RegistrationReply renew(const RegistrationRequest& request, const std::string& key_hash,
                          const Caller& caller, WallTime now);
  RegistrationReply refuse(const Caller& caller, const Refusal& refusal, WallTime now);
  RegistrationReply hold_back(const Caller& caller, WallTime now);
  Result<RegistrationReply> certified(const RegistrationRequest& request, const PeerId& peer,
                                      WallTime now) const;

  Authority& authority_;
  InviteBook& book_;
  Options options_;
  EventSink tell_;
  GuessLimit guesses_;
  int64_t num_held_back_ = 0;
  WallTime held_back_told_;
};

}  // namespace atl::identity
