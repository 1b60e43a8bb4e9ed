#include "atoll/openai/gateway.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/openai/chat_page.h"
#include "atoll/openai/embedding.h"
#include "atoll/openai/text_work.h"
#include "atoll/openai/tokens.h"

namespace atl::openai {
namespace {

constexpr const char* kJson = "application/json";

net::HttpReply json_reply(const Json& json) { return {.type = kJson, .body = dump(json)}; }

net::HttpReply error_reply(const ApiError& error) {
  net::HttpReply reply{.status = error.status, .type = kJson, .body = dump(json_of(error))};
  if (error.status == 401) reply.challenge = "Bearer";
  if (error.retry_after > Duration{}) {
    reply.fields.emplace_back("Retry-After",
                              fmt::format("{:.0f}", std::ceil(seconds(error.retry_after))));
  }
  return reply;
}

}  // namespace

/// An endpoint. What needs a key is everything that tells of models or asks them.
struct Gateway::Route {
  const char* path;
  const char* method;
  bool needs_key;
  net::HttpReply (Gateway::*handler)(const net::HttpRequest&);
};

const std::vector<Gateway::Route>& Gateway::routes() {
  static const std::vector<Route> kRoutes{
      {"/", "GET", false, &Gateway::page},
      {"/health", "GET", false, &Gateway::health},
      {"/metrics", "GET", true, &Gateway::metrics},
      {"/v1/models", "GET", true, &Gateway::models},
      {"/v1/completions", "POST", true, &Gateway::completions},
      {"/v1/chat/completions", "POST", true, &Gateway::chat},
      {"/v1/responses", "POST", true, &Gateway::responses},
      {"/v1/embeddings", "POST", true, &Gateway::embeddings},
      {"/v1/kept_texts", "DELETE", true, &Gateway::purge},
      {"/tokenize", "POST", true, &Gateway::tokens},
      {"/detokenize", "POST", true, &Gateway::tokens},
      {"/tokenizer_info", "GET", true, &Gateway::tokens},
      {"/v1/tokenize", "POST", true, &Gateway::tokens},
      {"/v1/detokenize", "POST", true, &Gateway::tokens},
      {"/v1/tokenizer_info", "GET", true, &Gateway::tokens},
  };
  return kRoutes;
}

Gateway::Gateway(std::vector<ServedModel> models, const std::vector<ApiKey>& keys,
                 GatewayLimits limits, const Clock& clock)
    : models_(std::move(models)),
      keys_(keys),
      limits_(limits),
      clock_(clock),
      created_(static_cast<int64_t>(wall_time())),
      admission_(limits.shares, keys_.shares()) {
  std::set<std::string> names;
  for (ServedModel& model : models_) {
    model.grammars =
        std::make_shared<Grammars>(model.tokenizer, model.generator->vocab_size(), model.ends);
    if (!names.insert(model.name).second) {
      throw UsageError(fmt::format("two models are called '{}'", model.name));
    }
  }
  if (models_.empty()) throw UsageError("there is no model to serve");
}

net::HttpReply Gateway::reply(const net::HttpRequest& request) {
  // Of strangers' paths the metrics know but one name: there is no end of them.
  std::string endpoint = "other";
  net::HttpReply reply;
  try {
    const Route* route = nullptr;
    for (const Route& one : routes()) {
      const bool is_of_one_model =
          one.handler == &Gateway::models && request.path.starts_with(std::string(one.path) + "/");
      if (request.path == one.path || is_of_one_model) route = &one;
    }
    if (route == nullptr) {
      throw ApiError(404, "", fmt::format("there is no '{}' here", request.path), "unknown_path");
    }
    endpoint = route->path;
    const bool is_head = request.method == "HEAD" && std::string(route->method) == "GET";
    if (request.method != route->method && !is_head) {
      throw ApiError(405, "", fmt::format("'{}' is asked with {}", route->path, route->method),
                     "method_not_allowed");
    }
    if (route->needs_key) key_of(request);
    reply = (this->*route->handler)(request);
  } catch (const ApiError& error) {
    reply = error_reply(error);
  } catch (const std::exception&) {  // Why is nothing that strangers may read.
    reply = error_reply({500, "", "the request failed here"});
  }
  metrics_.count_request(endpoint, reply.status);
  return reply;
}

size_t Gateway::key_of(const net::HttpRequest& request) const {
  const auto key = keys_.find(request.authorization);
  if (!key) {
    throw ApiError(401, "",
                   request.authorization.empty()
                       ? "an API key is needed here: 'Authorization: Bearer KEY'"
                       : "that is no API key of this gateway: 'Authorization: Bearer KEY'",
                   "invalid_api_key");
  }
  return *key;
}

const ServedModel& Gateway::model_named(const std::string& name) const {
  for (const ServedModel& model : models_) {
    if (model.name == name) return model;
  }
  throw ApiError(404, "model", fmt::format("there is no model '{}' here", name), "model_not_found");
}

net::HttpReply Gateway::page(const net::HttpRequest& /*request*/) {
  // Nothing from elsewhere, so that texts of models and people stay what they are.
  return {.type = "text/html; charset=utf-8",
          .body = std::string(chat_page()),
          .fields = {{"Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                      "connect-src 'self'"}}};
}

net::HttpReply Gateway::health(const net::HttpRequest& /*request*/) {
  return json_reply({{"status", "ok"}});
}

net::HttpReply Gateway::metrics(const net::HttpRequest& /*request*/) {
  const auto [num_running, num_waiting] = admission_.counts();
  Metrics::Now now{.num_running = num_running, .num_waiting = num_waiting};
  for (const ServedModel& model : models_) {
    now.models.emplace_back(model.name, model.generator->status());
  }
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text(now)};
}

net::HttpReply Gateway::models(const net::HttpRequest& request) {
  const auto described = [this](const ServedModel& model) -> Json {
    return {{"id", model.name},
            {"object", "model"},
            {"created", created_},
            {"owned_by", "atoll"},
            {"max_model_len", model.generator->context()}};
  };
  const std::string all = "/v1/models";
  if (request.path != all) {
    return json_reply(described(model_named(request.path.substr(all.size() + 1))));
  }
  Json list = Json::array();
  for (const ServedModel& model : models_) list.push_back(described(model));
  return json_reply({{"object", "list"}, {"data", std::move(list)}});
}

net::HttpReply Gateway::completions(const net::HttpRequest& request) {
  const CompletionRequest asked = read_completion(parse_body(request.body), limits_.request);
  const ServedModel& model = model_named(asked.model);
  return answer(model, work_of(asked, model), request);
}

net::HttpReply Gateway::chat(const net::HttpRequest& request) {
  const ChatRequest asked = read_chat(parse_body(request.body), limits_.request);
  const ServedModel& model = model_named(asked.model);
  return answer(model, work_of(asked, model), request);
}

net::HttpReply Gateway::responses(const net::HttpRequest& request) {
  const ResponseRequest asked = read_response(parse_body(request.body), limits_.request);
  const ServedModel& model = model_named(asked.model);
  return answer(model, work_of(asked, model), request);
}

net::HttpReply Gateway::answer(const ServedModel& model, TextWork work,
                               const net::HttpRequest& request) {
  const size_t key = key_of(request);
  for (decoding::GenerationRequest& text : work.texts) text.tenant = keys_.tenant_of(key);
  auto place = admission_.apply(key, std::ssize(work.texts), std::ssize(request.body));
  const bool is_stream = work.stream;
  auto answering = std::make_shared<Answering>(
      model, std::move(work), std::move(place),
      Answering::Shared{clock_, metrics_, limits_.ping_interval}, request.has_gone);
  if (!is_stream) return json_reply(answering->whole());
  answering->begin();
  return {.type = "text/event-stream",
          .fields = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
          .stream = [answering](net::HttpSink& sink) { answering->stream(sink); }};
}

net::HttpReply Gateway::embeddings(const net::HttpRequest& request) {
  const EmbeddingRequest asked = read_embedding(parse_body(request.body), limits_.request);
  const ServedModel& model = model_named(asked.model);
  std::vector<PromptIds> texts;
  int64_t num_tokens = 0;
  for (const Prompt& input : asked.inputs) {
    texts.push_back(
        encode(input, *model.tokenizer, model.generator->vocab_size(), model.ends, "input"));
    const int64_t size = std::ssize(texts.back().ids);
    num_tokens += size;
    if (size > model.generator->context()) {
      refuse("input",
             fmt::format("a text has {} tokens; the model's context has {}", size,
                         model.generator->context()),
             "context_length_exceeded");
    }
  }
  const size_t key = key_of(request);
  const auto place = admission_.apply(key, std::ssize(texts), std::ssize(request.body));
  while (!place->wait(std::chrono::milliseconds(100))) {
    if (request.has_gone()) return {};
  }
  return json_reply(embedding_reply(
      asked, embed(model, texts, keys_.tenant_of(key), request.has_gone), num_tokens));
}

/// Of whose key it is.
net::HttpReply Gateway::purge(const net::HttpRequest& request) {
  const uint64_t tenant = keys_.tenant_of(key_of(request));
  for (const ServedModel& model : models_) model.generator->purge(tenant);
  return json_reply({{"object", "kept_texts"}, {"deleted", true}});
}

net::HttpReply Gateway::tokens(const net::HttpRequest& request) {
  if (request.path.ends_with("/tokenizer_info")) return json_reply(tokenizer_info(models_[0]));
  const Json body = parse_body(request.body);
  Fields fields(body);
  const auto name = fields.text("model");
  const ServedModel& model = name ? model_named(*name) : models_[0];
  return json_reply(request.path.ends_with("/tokenize") ? tokenize(fields, model)
                                                        : detokenize(fields, model));
}

}  // namespace atl::openai
