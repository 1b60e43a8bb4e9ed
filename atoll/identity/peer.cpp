#include "atoll/identity/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "atoll/base/check.h"
#include "atoll/base/name.h"

namespace atl::identity {
namespace {

constexpr std::array<std::string_view, 6> kRoleNames = {"coordinator", "island", "server",
                                                        "gateway",     "reader", "relay"};
constexpr std::string_view kScheme = "atoll://";
constexpr size_t kFingerprintDigits = 64;

/// Cuts off `rest` what stands before the next '/', and that.
std::string_view next_part(std::string_view& rest) {
  const size_t end = std::min(rest.find('/'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

}  // namespace

std::span<const std::string_view> names_of(Role /*role*/) { return kRoleNames; }

Result<Role> role_named(std::string_view name) {
  const auto* const found = std::ranges::find(kRoleNames, name);
  if (found == kRoleNames.end()) return failure(fmt::format("no role '{}'", printable(name)));
  return static_cast<Role>(found - kRoleNames.begin());
}

bool is_peer_name(std::string_view name) {
  return is_valid_name(name) && name != "." && name != "..";
}

bool is_fingerprint(std::string_view text) {
  return text.size() == kFingerprintDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string uri_of(const PeerId& peer) {
  ATOLL_CHECK(is_fingerprint(peer.run) && is_peer_name(peer.name));
  return fmt::format("{}{}/{}/{}", kScheme, peer.run, name_of(peer.role), peer.name);
}

Result<PeerId> peer_in(std::string_view uri) {
  if (!uri.starts_with(kScheme)) return failure("a peer's URI does not begin with atoll://");
  std::string_view rest = uri.substr(kScheme.size());
  const std::string_view run = next_part(rest);
  if (!is_fingerprint(run)) return failure("a peer's URI has no fingerprint of a run");
  auto role = role_named(next_part(rest));
  if (!role) return failure("a peer's URI has " + role.error().message);
  if (!is_peer_name(rest)) return failure("a peer's URI has no valid name");
  return PeerId{.run = std::string(run), .role = *role, .name = std::string(rest)};
}

}  // namespace atl::identity
