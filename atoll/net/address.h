#pragma once
// "HOST:PORT" as people and peers write it, and the rule which addresses may be used unencrypted.
#include <cstdint>
#include <string>
#include <string_view>

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

/// True for 127.0.0.0/8, ::1 and "localhost": nobody outside this machine can listen in.
bool is_loopback(const Address& address);

/// Reads an address to listen on or connect to. While connections are unencrypted only loopback
/// passes, unless `insecure`; who sets it warns the user at every start.
Result<Address> check_address(std::string_view text, bool insecure);

}  // namespace atl::net
