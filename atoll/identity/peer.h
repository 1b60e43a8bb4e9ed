#pragma once
// Who a member is: of which run, what it may do, and its name in the run. A certificate says so in
// its one alternative name, the URI atoll://RUN/ROLE/NAME. Pure, thread-safe.
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "atoll/base/result.h"

namespace atl::identity {

enum class Role : uint8_t { kCoordinator, kIsland, kServer, kGateway, kReader, kRelay };

/// "coordinator", "island" and so on, in their order.
std::span<const std::string_view> names_of(Role role);
inline std::string_view name_of(Role role) { return names_of(role)[static_cast<size_t>(role)]; }
Result<Role> role_named(std::string_view name);

struct PeerId {
  std::string run;  // The fingerprint of the run's authority: 64 hexadecimal digits, lower case.
  Role role = Role::kIsland;
  std::string name;

  auto operator<=>(const PeerId&) const = default;
};

/// is_valid_name() (base/name.h), but for "." and "..", which are places and no names.
bool is_peer_name(std::string_view name);
/// 64 hexadecimal digits in lower case.
bool is_fingerprint(std::string_view text);

/// Of a peer whose parts are valid.
std::string uri_of(const PeerId& peer);
/// The inverse of uri_of(); no other spelling is taken.
Result<PeerId> peer_in(std::string_view uri);

}  // namespace atl::identity
