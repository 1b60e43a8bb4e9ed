#include "atoll/identity/invite_book.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <map>
#include <optional>
#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file_lock.h"
#include "atoll/base/hash.h"
#include "atoll/base/name.h"
#include "atoll/identity/invite.h"
#include "atoll/identity/private_file.h"

namespace atl::identity {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kIdDigits = 12;
/// So long the log can still say that an invite had ended.
constexpr std::chrono::days kRememberedAfterEnd{30};

struct StoredInvite {
  Role role = Role::kIsland;
  int64_t uses = 0;
  int64_t expiry = 0;  // Seconds since 1970.
  std::string name;
  std::string name_prefix;
  bool is_token = false;

  void visit(auto&& field) {
    field("role", role), field("uses", uses), field("expiry", expiry);
    field("name", name, LeftOutWhenNew{}), field("name_prefix", name_prefix, LeftOutWhenNew{});
    field("is_token", is_token, LeftOutWhenNew{});
  }
  WallTime end() const { return WallTime(std::chrono::seconds(expiry)); }
};

struct Book {
  int64_t version = kVersion;
  std::map<std::string, StoredInvite> invites;  // By the SHA-256 of their secrets.
  std::map<std::string, NameHolder> holders;    // By their names.

  void visit(auto&& field) {
    field("version", version), field("invites", invites), field("holders", holders);
  }
};

Book read_book(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  Book book = struct_in<Book>(read_private_file(path), path.string());
  if (book.version != kVersion) {
    throw InputError(fmt::format("{}: of version {}, and this program reads {}", path.string(),
                                 book.version, kVersion));
  }
  return book;
}

/// Lets `change` change the book, and writes it if that returns true.
void change_book(const std::filesystem::path& path, const auto& change) {
  const FileLock lock(path);
  Book book = read_book(path);
  if (change(book)) write_private_file(path, json_of(book).dump(1) + "\n");
}

std::string hash_of(std::string_view secret) { return hex(sha256(as_byte_span(secret))); }

/// Looks at all, and at all of each, however early one differs.
const std::pair<const std::string, StoredInvite>* find_invite(const Book& book,
                                                              const std::string& hash) {
  const std::pair<const std::string, StoredInvite>* found = nullptr;
  for (const auto& invite : book.invites) {
    const bool is_it = invite.first.size() == hash.size() &&
                       CRYPTO_memcmp(invite.first.data(), hash.data(), hash.size()) == 0;
    if (is_it) found = &invite;
  }
  return found;
}

/// Why a member may not have the name by this invite; nothing where it may.
std::optional<std::string> fault_of_name(const StoredInvite& invite, std::string_view name) {
  if (!is_peer_name(name)) {
    return fmt::format("'{}' is no valid name: 1 to 64 letters, digits, '-', '_' and '.'",
                       printable(name));
  }
  if (!invite.name.empty() && name != invite.name) {
    return fmt::format("the invite is for the name '{}', not '{}'", invite.name, name);
  }
  if (!name.starts_with(invite.name_prefix)) {
    return fmt::format("the invite is for names that begin with '{}', not for '{}'",
                       invite.name_prefix, name);
  }
  return std::nullopt;
}

Refusal guess(std::string to_log) {
  return {.to_stranger = std::string(kNoSuchInvite), .to_log = std::move(to_log), .is_guess = true};
}
Refusal mistake(const std::string& text) { return {.to_stranger = text, .to_log = text}; }

tl::expected<Grant, Refusal> redeem_in(Book& book, std::string_view secret, std::string_view name,
                                       std::string_view key_hash, WallTime now) {
  const std::string hash = hash_of(secret);
  const auto* const found = find_invite(book, hash);
  if (found == nullptr) return tl::unexpected(guess("of an unknown invite"));
  StoredInvite& invite = book.invites.at(found->first);
  const std::string id = hash.substr(0, kIdDigits);
  if (invite.is_token) {
    return tl::unexpected(guess(fmt::format("{} is a reader's token and no invite", id)));
  }
  if (now >= invite.end()) return tl::unexpected(guess(fmt::format("invite {} has expired", id)));
  const auto holder = book.holders.find(std::string(name));
  const bool is_held = holder != book.holders.end();
  if (is_held && holder->second.invite == hash && holder->second.key_hash == key_hash) {
    return Grant{.role = holder->second.role, .invite_id = id, .is_again = true};
  }
  if (invite.uses <= 0) return tl::unexpected(guess(fmt::format("invite {} is used up", id)));
  if (const auto fault = fault_of_name(invite, name)) return tl::unexpected(mistake(*fault));
  // Who lost its certificate and not its key comes back by a new invite.
  const bool is_its_own =
      is_held && holder->second.key_hash == key_hash && holder->second.role == invite.role;
  if (is_held && !is_its_own) {
    return tl::unexpected(
        mistake(fmt::format("the name '{}' is taken in this run: choose another", name)));
  }
  if (book.holders.size() >= kMaxHolders) {
    return tl::unexpected(mistake("the run has as many members as it can have"));
  }
  --invite.uses;
  book.holders[std::string(name)] =
      NameHolder{.role = invite.role, .key_hash = std::string(key_hash), .invite = hash};
  return Grant{.role = invite.role, .invite_id = id};
}

void require_sense(const InviteTerms& terms, WallTime now) {
  const auto refuse = [](const std::string& what) { throw InputError("no such invite: " + what); };
  if (terms.role == Role::kCoordinator || terms.role > Role::kRelay) {
    refuse("a coordinator is not invited: who has the authority's folder signs its certificate");
  }
  if (terms.is_token) {
    if (terms.role != Role::kReader) refuse("a token is a reader's");
    if (terms.uses != 0 || !terms.name.empty() || !terms.name_prefix.empty()) {
      refuse("nobody is named by a token, and its uses are not counted");
    }
  }
  if (!terms.is_token && (terms.uses < 1 || terms.uses > kMaxUses)) {
    refuse(fmt::format("from 1 to {} members may use one", kMaxUses));
  }
  if (terms.expiry <= now || terms.expiry > kLastWallTime) refuse("its end must lie ahead");
  if (!terms.name.empty() && !is_peer_name(terms.name)) refuse("its name is none");
  if (!terms.name.empty() && terms.uses > 1) refuse("one name is for one member");
  if (!terms.name_prefix.empty() && !is_valid_name(terms.name_prefix)) {
    refuse("no name begins so");
  }
}

}  // namespace

std::string invite_id(std::string_view secret) { return hash_of(secret).substr(0, kIdDigits); }

std::string InviteBook::add(const InviteTerms& terms, WallTime now) {
  require_sense(terms, now);
  std::string secret = new_secret();
  change_book(path_, [&](Book& book) {
    std::erase_if(book.invites, [&](const auto& invite) {
      return invite.second.end() + kRememberedAfterEnd < now;
    });
    if (book.invites.size() >= kMaxInvites) {
      throw InputError(fmt::format("there are {} invites: withdraw some first", kMaxInvites));
    }
    book.invites[hash_of(secret)] = {.role = terms.role,
                                     .uses = terms.uses,
                                     .expiry = terms.expiry.time_since_epoch().count(),
                                     .name = terms.name,
                                     .name_prefix = terms.name_prefix,
                                     .is_token = terms.is_token};
    return true;
  });
  return secret;
}

std::vector<ListedInvite> InviteBook::list() const {
  std::vector<ListedInvite> out;
  for (const auto& [hash, invite] : read_book(path_).invites) {
    out.push_back({.id = hash.substr(0, kIdDigits),
                   .terms = {.role = invite.role,
                             .uses = invite.uses,
                             .expiry = invite.end(),
                             .name = invite.name,
                             .name_prefix = invite.name_prefix,
                             .is_token = invite.is_token}});
  }
  return out;
}

bool InviteBook::withdraw(std::string_view id) {
  bool was_there = false;
  change_book(path_, [&](Book& book) {
    was_there = std::erase_if(book.invites, [&](const auto& invite) {
                  return std::string_view(invite.first).substr(0, kIdDigits) == id;
                }) > 0;
    return was_there;
  });
  return was_there;
}

tl::expected<Grant, Refusal> InviteBook::redeem(std::string_view secret, std::string_view name,
                                                std::string_view key_hash, WallTime now) {
  tl::expected<Grant, Refusal> answer = tl::unexpected(guess("of what is no invite's secret"));
  if (!is_secret(secret)) return answer;
  change_book(path_, [&](Book& book) {
    answer = redeem_in(book, secret, name, key_hash, now);
    return answer && !answer->is_again;
  });
  return answer;
}

bool InviteBook::is_reader_token(std::string_view secret, WallTime now) const {
  if (!is_secret(secret)) return false;
  const Book book = read_book(path_);
  const auto* const found = find_invite(book, hash_of(secret));
  return found != nullptr && found->second.is_token && found->second.role == Role::kReader &&
         now < found->second.end();
}

bool InviteBook::hold(const PeerId& peer, std::string_view key_hash) {
  bool is_held = false;
  change_book(path_, [&](Book& book) {
    const auto found = book.holders.find(peer.name);
    if (found == book.holders.end()) {
      is_held = is_peer_name(peer.name) && book.holders.size() < kMaxHolders;
      if (is_held) {
        book.holders[peer.name] = {.role = peer.role, .key_hash = std::string(key_hash)};
      }
      return is_held;
    }
    is_held = found->second.role == peer.role;
    if (!is_held || found->second.key_hash == key_hash) return false;
    found->second.key_hash = key_hash;
    return true;
  });
  return is_held;
}

bool InviteBook::release(std::string_view name) {
  bool was_held = false;
  change_book(path_, [&](Book& book) {
    const auto found = book.holders.find(std::string(name));
    was_held = found != book.holders.end();
    if (!was_held) return false;
    book.invites.erase(found->second.invite);
    book.holders.erase(found);
    return true;
  });
  return was_held;
}

std::vector<std::pair<std::string, NameHolder>> InviteBook::holders() const {
  const Book book = read_book(path_);
  return {book.holders.begin(), book.holders.end()};
}

}  // namespace atl::identity
