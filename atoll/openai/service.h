#pragma once
// The API on a port: the gateway behind an HTTP server. It serves from when it is made until it
// goes.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/http_server.h"
#include "atoll/openai/gateway.h"

namespace atl::openai {

struct ServiceOptions {
  std::string listen = "127.0.0.1:8000";  // Port 0: the system chooses.
  std::vector<ServedModel> models;
  std::vector<ApiKey> keys;      // None: everybody may ask.
  std::string certificate_file;  // In PEM, with those that it needs behind it; empty: in the clear.
  std::string private_key_file;
  /// Other machines may ask without a key, and in the clear.
  bool insecure = false;
  GatewayLimits limits;
  size_t max_connections = 4096;
  size_t max_connections_per_address = 1024;
  size_t max_body_bytes = size_t{8} << 20;
};

class Service {
 public:
  /// `clock` must outlive it. Throws UsageError where the options do not fit together, InputError
  /// where the port or a file cannot be used.
  Service(ServiceOptions options, const Clock& clock);

  /// HOST:PORT with the port that was bound.
  const std::string& address() const { return server_->address(); }
  /// With its scheme: "http://127.0.0.1:8000".
  std::string url() const;

 private:
  const bool is_encrypted_;
  Gateway gateway_;
  std::unique_ptr<net::HttpServer> server_;  // Goes first: its threads ask the gateway.
};

}  // namespace atl::openai
