#pragma once
// The API without its sockets: a request in, a reply out. Thread-safe.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/http_server.h"
#include "atoll/openai/answering.h"
#include "atoll/openai/chat.h"
#include "atoll/openai/completion.h"
#include "atoll/openai/keyring.h"
#include "atoll/openai/request_options.h"

namespace atl::openai {

struct GatewayLimits {
  RequestLimits request;
  FairShares::Limits shares;
  Duration ping_interval = std::chrono::seconds(10);  // Of a stream in which nothing comes.
};

class Gateway {
 public:
  /// At least one model, of different names; `clock` must outlive it. Throws UsageError.
  Gateway(std::vector<ServedModel> models, const std::vector<ApiKey>& keys, GatewayLimits limits,
          const Clock& clock);

  /// What is thrown on the way becomes OpenAI's form of an error.
  net::HttpReply reply(const net::HttpRequest& request);

 private:
  struct Route;
  static const std::vector<Route>& routes();

  net::HttpReply page(const net::HttpRequest& request);
  net::HttpReply health(const net::HttpRequest& request);
  net::HttpReply metrics(const net::HttpRequest& request);
  net::HttpReply models(const net::HttpRequest& request);
  net::HttpReply completions(const net::HttpRequest& request);
  net::HttpReply chat(const net::HttpRequest& request);
  net::HttpReply responses(const net::HttpRequest& request);
  net::HttpReply embeddings(const net::HttpRequest& request);
  net::HttpReply tokens(const net::HttpRequest& request);
  net::HttpReply purge(const net::HttpRequest& request);

  size_t key_of(const net::HttpRequest& request) const;
  const ServedModel& model_named(const std::string& name) const;
  net::HttpReply answer(const ServedModel& model, TextWork work, const net::HttpRequest& request);

  std::vector<ServedModel> models_;  // As they are since the start.
  const Keyring keys_;
  const GatewayLimits limits_;
  const Clock& clock_;
  const int64_t created_;  // When this began, in seconds since 1970.
  Metrics metrics_;
  Admission admission_;
};

}  // namespace atl::openai
