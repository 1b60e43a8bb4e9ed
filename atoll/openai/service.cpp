#include "atoll/openai/service.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/net/address.h"
#include "atoll/net/https.h"

namespace atl::openai {
namespace {

/// Beside the requests that may run and wait, for what is answered at once: whoever comes when all
/// places are taken is told so, and /health is always answered.
constexpr size_t kMoreThreads = 64;

net::HttpLimits http_limits(const ServiceOptions& options) {
  const FairShares::Limits& shares = options.limits.shares;
  return {.threads = static_cast<size_t>(shares.running + shares.waiting) + kMoreThreads,
          .connections = options.max_connections,
          .body_bytes = options.max_body_bytes,
          .deadline = std::chrono::seconds(30),
          .keep_alive = std::chrono::seconds(75),
          .per_address = options.max_connections_per_address};
}

std::shared_ptr<const net::HttpsHost> https_host(const ServiceOptions& options) {
  if (options.certificate_file.empty() != options.private_key_file.empty()) {
    throw UsageError("a certificate's file and its key's go together");
  }
  if (options.certificate_file.empty()) return nullptr;
  return net::HttpsHost::of_files(options.certificate_file, options.private_key_file);
}

void require_closed(const ServiceOptions& options) {
  net::require_address("--listen", options.listen);
  if (options.insecure || net::is_loopback(*net::parse_address(options.listen))) return;
  if (options.keys.empty()) {
    throw UsageError(fmt::format(
        "{} can be reached from other machines, and everybody there could ask: give API keys, "
        "listen on 127.0.0.1, or say --insecure",
        options.listen));
  }
  if (options.certificate_file.empty()) {
    throw UsageError(fmt::format(
        "{} can be reached from other machines, and keys would go there in the clear: give a "
        "certificate, listen on 127.0.0.1, or say --insecure",
        options.listen));
  }
}

}  // namespace

Service::Service(ServiceOptions options, const Clock& clock)
    : is_encrypted_(!options.certificate_file.empty()),
      gateway_(options.models, options.keys, options.limits, clock) {
  require_closed(options);
  auto server = net::HttpServer::start(
      options.listen, [this](const net::HttpRequest& request) { return gateway_.reply(request); },
      clock, http_limits(options), https_host(options),
      net::HttpServer::Exposure::kAnywhereInTheClear);
  if (!server) throw InputError("--listen: " + server.error().message);
  server_ = std::move(*server);
}

std::string Service::url() const {
  return fmt::format("{}://{}", is_encrypted_ ? "https" : "http", address());
}

}  // namespace atl::openai
