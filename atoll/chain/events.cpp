#include "atoll/chain/events.h"

#include <fmt/format.h>

#include "atoll/chain/lease.h"
#include "atoll/swarm/unanswered.h"

namespace atl::chain {
namespace {

using fmt::format;

std::string layers_of(int64_t first, int64_t last) {
  return text_of({static_cast<int32_t>(first), static_cast<int32_t>(last + 1)});
}

}  // namespace

std::string ServerCame::sentence() const {
  return format("server '{}' ({}) came for the model {}", server, address, model);
}

std::string ServerPlaced::sentence() const {
  const std::string why = reason == "gap"       ? ", which nobody serves"
                          : reason == "balance" ? ", where more is gained"
                                                : "";
  return format("server '{}' is to serve {}{}", server, layers_of(first, last), why);
}

std::string ServerServes::sentence() const {
  return format("server '{}' serves {}", server, layers_of(first, last));
}

std::string ServerGone::sentence() const {
  return format("server '{}' is gone: {}", server, reason);
}

std::string ServerIdle::sentence() const {
  return format("server '{}' does not get on with the layers that it was given", server);
}

std::string OfferRefused::sentence() const {
  return format("server '{}' was refused: {}", server, reason);
}

std::string ServerReported::sentence() const {
  const std::string who = gateway.empty() ? "a gateway" : format("gateway '{}'", gateway);
  return format("{} reports that server '{}' does not compute what its model says: {}", who, server,
                reason);
}

std::string ModelWhole::sentence() const {
  return format("all layers of {} are served, by {} servers", model, servers);
}

std::string ModelTorn::sentence() const {
  return format("{} layers of {} are served by nobody", missing, model);
}

std::string DirectoryReached::sentence() const {
  return format("the coordinator at {} is reached", coordinator);
}

std::string DirectoryMissed::sentence() const {
  return format("the coordinator is missed ({}) and is tried again", reason);
}

std::string DirectoryUnanswered::sentence() const {
  return swarm::nobody_answers(coordinator, reason);
}

std::string DirectoryRefused::sentence() const {
  return format("the coordinator refuses: {}; it is tried again", reason);
}

std::string LiarFound::sentence() const {
  return format("server '{}' does not compute what its model says, and is not used any more: {}",
                server, reason);
}

std::string AuditsFail::sentence() const {
  return format("servers' answers cannot be audited: {}", reason);
}

}  // namespace atl::chain
