#pragma once
// What a registrar tells (base/event.h). No sentence has a secret in it, and whatever strangers say
// is made printable before it comes here.
#include <cstdint>
#include <string>

namespace atl::identity {

struct MemberInvited {
  static constexpr const char* kKind = "member_invited";
  std::string invite;  // Its id.
  std::string role;
  int64_t uses = 0;
  std::string until;
  void visit(auto&& field) const {
    field("invite", invite), field("role", role), field("uses", uses), field("until", until);
  }
  std::string sentence() const;
};

struct MemberRegistered {
  static constexpr const char* kKind = "member_registered";
  std::string member;
  std::string role;
  std::string invite;
  std::string address;
  bool is_again = false;
  void visit(auto&& field) const {
    field("member", member), field("role", role), field("invite", invite);
    field("address", address), field("is_again", is_again);
  }
  std::string sentence() const;
};

struct RegistrationRefused {
  static constexpr const char* kKind = "registration_refused";
  std::string address;
  std::string reason;
  void visit(auto&& field) const { field("address", address), field("reason", reason); }
  std::string sentence() const;
};

/// Not told of each: whoever guesses must not fill the disk.
struct GuessesHeldBack {
  static constexpr const char* kKind = "guesses_held_back";
  std::string address;
  int64_t requests = 0;
  void visit(auto&& field) const { field("address", address), field("requests", requests); }
  std::string sentence() const;
};

struct CertificateRenewed {
  static constexpr const char* kKind = "certificate_renewed";
  std::string member;
  std::string role;
  void visit(auto&& field) const { field("member", member), field("role", role); }
  std::string sentence() const;
};

struct MemberRevoked {
  static constexpr const char* kKind = "member_revoked";
  std::string subject;  // A member's name, or the serial number of a certificate.
  int64_t number = 0;   // Of the revocation list.
  void visit(auto&& field) const { field("subject", subject), field("number", number); }
  std::string sentence() const;
};

/// Once a minute at most, and not of each: whoever guesses must not fill the disk.
struct ReadersRefused {
  static constexpr const char* kKind = "readers_refused";
  std::string address;   // Of the last one.
  int64_t requests = 0;  // So far, of all addresses.
  void visit(auto&& field) const { field("address", address), field("requests", requests); }
  std::string sentence() const;
};

struct RegistrarFailed {
  static constexpr const char* kKind = "registrar_failed";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

}  // namespace atl::identity
