#pragma once
// Which invites there are, and who came by them: one private file of JSON, in which a name and the
// use of an invite that it cost change together. Secrets are not in it, only their SHA-256.
//
// Each call reads the file, and changes it under a lock, so that a coordinator and a command of its
// operator can work on the same one. Thread-safe across processes; for one thread in each.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "atoll/identity/peer.h"
#include "atoll/identity/wall_time.h"

namespace atl::identity {

inline constexpr size_t kMaxInvites = 1024;
inline constexpr size_t kMaxHolders = 16384;
inline constexpr int64_t kMaxUses = 10000;

/// What the secret of an invite is good for.
struct InviteTerms {
  Role role = Role::kIsland;
  int64_t uses = 1;  // That are left.
  WallTime expiry;
  std::string name;         // The one name; empty: the member chooses.
  std::string name_prefix;  // What the name must begin with.
  /// A reader's token: nobody becomes a member by it, and it may be shown as often as one likes.
  /// Without uses and names.
  bool is_token = false;

  bool operator==(const InviteTerms&) const = default;
};

/// Twelve digits that name an invite in lists and logs, and are of no use to anybody else.
std::string invite_id(std::string_view secret);

/// An invite as its operator sees it.
struct ListedInvite {
  std::string id;
  InviteTerms terms;
};

/// Who has a name, and by which invite.
struct NameHolder {
  Role role = Role::kIsland;
  std::string key_hash;  // As in CertificateFacts.
  std::string invite;    // SHA-256 of its secret; empty: by none.

  void visit(auto&& field) { field("role", role), field("key", key_hash), field("invite", invite); }
};

struct Grant {
  Role role;
  std::string invite_id;
  bool is_again = false;  // The same key had the name by the same invite: an answer was lost.
};

struct Refusal {
  std::string to_stranger;
  std::string to_log;  // The true reason.
  bool is_guess = false;
};

/// What a stranger hears who has no invite that is good for something, whatever is wrong with it.
inline constexpr std::string_view kNoSuchInvite =
    "no such invite: it may have expired or been used; ask for a new one";

class InviteBook {
 public:
  /// The file need not be there yet.
  explicit InviteBook(std::filesystem::path path) : path_(std::move(path)) {}

  // All throw InputError where the file cannot be read or written, or is damaged.

  /// A new invite; returns its secret, which nothing here keeps. Invites that ended long ago are
  /// forgotten. Throws InputError for terms that make no sense, and when the book is full.
  std::string add(const InviteTerms& terms, WallTime now);
  std::vector<ListedInvite> list() const;
  /// Whether there was one with that id.
  bool withdraw(std::string_view id);

  /// Gives the name to the key, for one use of the invite. Durable on return.
  tl::expected<Grant, Refusal> redeem(std::string_view secret, std::string_view name,
                                      std::string_view key_hash, WallTime now);

  /// Whether that is a reader's token, and still holds. Changes nothing: for any thread.
  bool is_reader_token(std::string_view secret, WallTime now) const;

  /// Gives a name without an invite, or a new key to it. Whether that could be: it is nobody's, or
  /// held in this role.
  bool hold(const PeerId& peer, std::string_view key_hash);
  /// The name is free again. The invite by which its holder came is withdrawn, since the holder
  /// knows its secret. Whether somebody held it.
  bool release(std::string_view name);
  std::vector<std::pair<std::string, NameHolder>> holders() const;

 private:
  std::filesystem::path path_;
};

}  // namespace atl::identity
