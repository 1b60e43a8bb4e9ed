#include "atoll/net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "atoll/base/error.h"
#include "atoll/base/number.h"

namespace atl::net {

std::string Address::text() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> parse_address(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return failure(
        fmt::format("not an address: '{}' ({}; write HOST:PORT, e.g. 127.0.0.1:7777 or [::1]:7777)",
                    text.substr(0, 100), why));
  };
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    return bad(fmt::format("leave '{}' out", text.substr(0, scheme + 3).substr(0, 20)));
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    in6_addr ignored{};
    if (inet_pton(AF_INET6, std::string(host).c_str(), &ignored) != 1) {
      return bad("what is in brackets is no IPv6 address");
    }
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.empty()) return bad("no host");
  if (host.find_first_of(" \t\r\n/@") != std::string_view::npos) {
    return bad("a character that no host has");
  }
  const auto number = number_in<uint16_t>(port);
  if (!number) return bad("the port is no number from 0 to 65535");
  return Address{.host = std::string(host), .port = *number};
}

void require_address(std::string_view option, std::string_view text) {
  if (const auto address = parse_address(text); !address) {
    throw UsageError(fmt::format("{}: {}", option, address.error().message));
  }
}

bool is_loopback(const Address& address) {
  if (address.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_any_host(std::string_view host) { return host == "0.0.0.0" || host == "::"; }

Result<Address> check_address(std::string_view text, bool any) {
  Result<Address> address = parse_address(text);
  if (address && !any && !is_loopback(*address)) {
    return failure(fmt::format(
        "{} {}, and anyone on the way could read and change what is said in the clear: encrypt the "
        "run ('atoll create' makes it one, 'atoll join INVITE' joins), or pass --insecure if you "
        "trust the whole network in between",
        address->text(),
        is_any_host(address->host) ? "is for other machines too" : "is not on this machine"));
  }
  return address;
}

}  // namespace atl::net
