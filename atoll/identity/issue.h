#pragma once
// How the certificates of a run are made. Pure but for the random serial number.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/identity/key.h"
#include "atoll/identity/peer.h"
#include "atoll/identity/wall_time.h"

namespace atl::identity {

/// Certificates begin to hold that much before they are made, for machines whose clock is slow.
inline constexpr std::chrono::minutes kBackdated{5};
inline constexpr std::chrono::days kAuthorityValidity{3650};
/// Members renew theirs; a longer life would only make revocation lists longer.
inline constexpr std::chrono::days kMaxValidity{90};

/// Signed by the key itself; may sign members' certificates and nothing below them.
std::string authority_certificate(const Key& key, std::string_view run_name, WallTime now);

/// For the key that a request is for, which the caller has verified (public_key_in()). It holds no
/// longer than the authority's.
std::string member_certificate(const Key& authority, std::string_view authority_pem,
                               std::string_view request_pem, const PeerId& peer,
                               std::chrono::seconds validity, WallTime now);

/// Whether a web certificate may name it: a host's name, or an IPv4 or IPv6 address.
bool is_web_host(std::string_view host);

/// For a server that readers ask over HTTPS, by one of these names (at least one, each of which
/// is_web_host()). It is nobody's who takes part: its alternative names are hosts and no peer's
/// URI, and it is good for servers alone.
std::string web_certificate(const Key& authority, std::string_view authority_pem, const Key& server,
                            const std::vector<std::string>& hosts, std::chrono::seconds validity,
                            WallTime now);

}  // namespace atl::identity
