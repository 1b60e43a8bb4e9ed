#include "atoll/identity/invite.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <utility>

#include "atoll/base/base64.h"
#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/name.h"

namespace atl::identity {
namespace {

constexpr std::string_view kPrefix = "atoll1.";
constexpr size_t kChecksumBytes = 4;
constexpr size_t kMaxNameBytes = 64;

/// RFC 4648, section 5, without padding: a shell leaves it alone, and a double click takes it
/// whole.
std::string to_base64url(std::string_view bytes) {
  std::string text = to_base64(bytes);
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  text.erase(std::min(text.find('='), text.size()));
  return text;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string padded(text);
  std::ranges::replace(padded, '-', '+');
  std::ranges::replace(padded, '_', '/');
  padded.append((4 - padded.size() % 4) % 4, '=');
  auto bytes = from_base64(padded);
  // One spelling alone: no '+', no padding, no bits beyond the end.
  if (bytes && to_base64url(*bytes) != text) return std::nullopt;
  return bytes;
}

std::string checksum_of(std::string_view bytes) {
  const Digest digest = Sha256().update(kPrefix).update(bytes).finish();
  return std::string(as_text(digest).substr(0, kChecksumBytes));
}

bool is_address(std::string_view text) {
  return !text.empty() && text.size() <= kMaxAddressBytes &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; });
}

/// What is wrong with it; empty if nothing.
std::string fault_of(const Invite& invite) {
  if (invite.addresses.empty()) return "it has no address";
  if (invite.addresses.size() > kMaxInviteAddresses) {
    return fmt::format("it has more than {} addresses", kMaxInviteAddresses);
  }
  if (!std::ranges::all_of(invite.addresses, is_address)) return "it has an address that is none";
  if (!is_fingerprint(invite.fingerprint)) return "it has no fingerprint of a run";
  if (!is_secret(invite.secret)) return "it has no secret";
  if (!is_peer_name(invite.run_name)) return "its run has no valid name";
  if (invite.role > Role::kRelay)
    return "it is for an unknown role: is this program too old for it?";
  if (invite.expiry < WallTime() || invite.expiry > kLastWallTime) return "its end is no time";
  return {};
}

/// Throws InputError, as a ByteReader does.
Invite read_invite(std::string_view bytes) {
  ByteReader in(as_byte_span(bytes));
  Invite invite;
  const auto num_addresses = in.get<uint8_t>();
  if (num_addresses > kMaxInviteAddresses) throw InputError("it has too many addresses");
  for (int i = 0; i < num_addresses; ++i) {
    invite.addresses.push_back(in.get_string(kMaxAddressBytes));
  }
  Digest fingerprint;
  std::ranges::copy(in.get_bytes(fingerprint.size()), fingerprint.begin());
  invite.fingerprint = hex(fingerprint);
  invite.secret = in.get_string(kMaxSecretBytes);
  invite.run_name = in.get_string(kMaxNameBytes);
  invite.role = static_cast<Role>(in.get<uint8_t>());
  invite.expiry = WallTime(std::chrono::seconds(in.get<int64_t>()));
  in.expect_end();
  return invite;
}

std::string first_line_of(std::istream& input, std::string_view name) {
  std::string line(kMaxInviteBytes + 1, '\0');
  input.getline(line.data(), static_cast<std::streamsize>(line.size()));
  if (input.bad() || (input.fail() && input.gcount() == 0)) {
    throw InputError(fmt::format("nothing could be read from {}", name));
  }
  // Without an end of line within the maximum the invite is cut, which its checksum says.
  line.resize(std::min(line.find('\0'), line.size()));
  return line;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

bool is_invite_word(std::string_view word) { return word.starts_with(kPrefix); }

std::string new_secret() {
  std::array<unsigned char, 16> bytes;
  ATOLL_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return to_base64url(as_text(std::as_bytes(std::span(bytes))));
}

bool is_secret(std::string_view text) {
  return text.size() >= kMinSecretBytes && text.size() <= kMaxSecretBytes &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_';
         });
}

std::string word_of(const Invite& invite) {
  const std::string fault = fault_of(invite);
  if (!fault.empty()) throw InputError(fmt::format("this is no invite: {}", fault));
  ByteWriter out;
  out.put(static_cast<uint8_t>(invite.addresses.size()));
  for (const std::string& address : invite.addresses) out.put_string(address);
  out.put_bytes(digest_from_hex(invite.fingerprint));
  out.put_string(invite.secret).put_string(invite.run_name).put(invite.role);
  out.put(static_cast<int64_t>(invite.expiry.time_since_epoch().count()));
  const Bytes body = out.take();
  return std::string(kPrefix) +
         to_base64url(std::string(as_text(body)) + checksum_of(as_text(body)));
}

Result<Invite> invite_in(std::string_view word) {
  if (!word.starts_with(kPrefix)) {
    return failure(fmt::format("this is no invite: one begins with '{}'", kPrefix));
  }
  const auto damaged = [] {
    return failure("the invite is cut off or mistyped: copy the whole word again");
  };
  if (word.size() > kMaxInviteBytes) return damaged();
  auto bytes = from_base64url(word.substr(kPrefix.size()));
  if (!bytes || bytes->size() < kChecksumBytes) return damaged();
  const Secret all(*std::move(bytes));
  const std::string_view body =
      std::string_view(all.text()).substr(0, all.text().size() - kChecksumBytes);
  if (checksum_of(body) != all.text().substr(body.size())) return damaged();
  try {
    Invite invite = read_invite(body);
    const std::string fault = fault_of(invite);
    if (!fault.empty()) throw InputError(fault);
    return invite;
  } catch (const InputError& error) {
    return failure(fmt::format("this is no invite: {}", error.what()));
  }
}

std::string read_invite_argument(std::string_view word, std::istream& input) {
  std::string text(word);
  if (word == "-") {
    text = first_line_of(input, "the standard input");
  } else if (word.starts_with('@')) {
    const std::string path(word.substr(1));
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw InputError(
          fmt::format("nothing could be read from '{}': {}", path, std::strerror(errno)));
    }
    text = first_line_of(file, fmt::format("'{}'", path));
  }
  return std::string(trimmed(text));
}

std::string read_invite_argument(std::string_view word) {
  return read_invite_argument(word, std::cin);
}

}  // namespace atl::identity
