#include "atoll/cli/reader_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/identity/issue.h"
#include "atoll/identity/reader_gate.h"
#include "atoll/net/address.h"

namespace atl::cli {
namespace {

/// Strangers reach this port. Of 64 places one address has a quarter.
constexpr net::HttpLimits kLimits{.per_address = 16};

/// A browser then asks its user, for a name (any) and a password (the token).
net::HttpReply unknown_reader() {
  return {.status = 401,
          .body = "a reader's token is needed here: 'atoll invite RUN --role reader --token'\n",
          .challenge = "Basic realm=\"atoll\""};
}

net::HttpReply reply_to(const net::HttpRequest& request, identity::ReaderGate& gate,
                        const swarm::StatusBoard& board) {
  using Answer = identity::ReaderGate::Answer;
  try {
    switch (gate.answer({.address = request.host, .certificate = request.certificate},
                        request.authorization, run::wall_now())) {
      case Answer::kMayRead:
        return board.reply(request.path);
      case Answer::kHeldBack:
        return {.status = 429, .body = "too many attempts: wait a minute\n"};
      case Answer::kUnknown:
        return unknown_reader();
    }
  } catch (const InputError&) {  // A file of ours: it is nothing that a stranger may read.
  }
  return {.status = 503, .body = "nobody can be known at the moment: try again later\n"};
}

/// By which it may be asked: a certificate names them all. Those of this machine alone are among
/// them for who comes through a tunnel.
std::vector<std::string> hosts_of(const std::string& host, const std::vector<std::string>& names) {
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "::1"};
  const auto add = [&](const std::string& one) {
    if (std::ranges::find(hosts, one) == hosts.end()) hosts.push_back(one);
  };
  for (const std::string& name : names) {
    if (!identity::is_web_host(name)) {
      throw UsageError(fmt::format("--https-name: '{}' is no host's name and no IP address", name));
    }
    add(name);
  }
  if (!net::is_any_host(host)) add(host);
  for (const std::string& own : net::own_hosts()) add(own);
  return hosts;
}

}  // namespace

std::unique_ptr<net::HttpServer> serve_readers(const std::string& where,
                                               const std::vector<std::string>& names,
                                               run::RunAuthority& authority,
                                               const swarm::StatusBoard& board,
                                               const Clock& clock) {
  net::require_address("--https", where);
  auto host = authority.serve_web(hosts_of(net::parse_address(where)->host, names));
  auto server = net::HttpServer::start(
      where,
      [&authority, &board](const net::HttpRequest& request) {
        return reply_to(request, authority.readers(), board);
      },
      clock, kLimits, std::move(host));
  if (!server) throw InputError("--https: " + server.error().message);
  return std::move(*server);
}

}  // namespace atl::cli
