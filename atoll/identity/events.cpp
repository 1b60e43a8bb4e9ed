#include "atoll/identity/events.h"

#include <fmt/format.h>

namespace atl::identity {

std::string MemberInvited::sentence() const {
  return fmt::format("invite {}: for {} member{} as {}, until {}", invite, uses,
                     uses == 1 ? "" : "s", role, until);
}
std::string MemberRegistered::sentence() const {
  return fmt::format("'{}' ({}) {} by invite {} from {}", member, role,
                     is_again ? "asked again for its certificate," : "is a member now,", invite,
                     address);
}
std::string RegistrationRefused::sentence() const {
  return fmt::format("{} was refused a certificate: {}", address, reason);
}
std::string GuessesHeldBack::sentence() const {
  return fmt::format("{} guesses too often: {} request{} unanswered by now", address, requests,
                     requests == 1 ? "" : "s");
}
std::string CertificateRenewed::sentence() const {
  return fmt::format("'{}' ({}) has a new certificate", member, role);
}
std::string MemberRevoked::sentence() const {
  return fmt::format("'{}' is revoked (list {})", subject, number);
}
std::string ReadersRefused::sentence() const {
  return fmt::format("{} may not read: {} request{} over HTTPS refused by now", address, requests,
                     requests == 1 ? "" : "s");
}
std::string RegistrarFailed::sentence() const {
  return fmt::format("no certificate can be given: {}", reason);
}

}  // namespace atl::identity
