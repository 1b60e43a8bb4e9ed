#pragma once
// "HOST:PORT" as people and peers write it, and the rule which addresses may be used unencrypted.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/result.h"

namespace atl::net {

struct Address {
  std::string host;  // A name, an IPv4 address, or an IPv6 address without brackets.
  uint16_t port = 0;

  /// "HOST:PORT", with brackets around an IPv6 address.
  std::string text() const;
};

/// Reads "HOST:PORT" or "[IPV6]:PORT". The failure names the text and what is wrong with it.
Result<Address> parse_address(std::string_view text);

/// Throws UsageError naming the option when its text is no address.
void require_address(std::string_view option, std::string_view text);

/// The host of this machine that others at `remote` see it as, if nothing on the way translates
/// addresses; empty where there is no way to it. Sends nothing.
std::string host_towards(const Address& remote);

/// Hosts at which other machines may reach this one, IPv4 first.
std::vector<std::string> own_hosts();

/// True for 127.0.0.0/8, ::1 and "localhost": nobody outside this machine can listen in.
bool is_loopback(const Address& address);

/// True for 0.0.0.0 and ::, where one listens at all addresses and nobody can go to.
bool is_any_host(std::string_view host);

/// Reads an address to listen on or connect to. Where connections are in the clear only loopback
/// passes, unless the user accepts that (`any`), who is warned at every start.
Result<Address> check_address(std::string_view text, bool any);

}  // namespace atl::net
