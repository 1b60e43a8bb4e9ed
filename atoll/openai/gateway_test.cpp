// The API without its sockets, over a generator without a model. What clients make of it is
// tests/processes/gateway_test.py.
#include "atoll/openai/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "atoll/base/error.h"
#include "atoll/openai/service.h"
#include "atoll/testing/fake_generator.h"
#include "atoll/testing/sample_tokenizer.h"

namespace atl::openai {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class TextSink final : public net::HttpSink {
 public:
  bool write(std::string_view part) override {
    text += part;
    return true;
  }
  std::string text;
};

ServedModel fake_model(decoding::FakeGeneratorOptions options = {}) {
  return {.name = "fake",
          .generator = std::make_shared<decoding::FakeGenerator>(options),
          .tokenizer = std::make_shared<tokenizer::Tokenizer>(
              tokenizer::Tokenizer::from_json(data::sample_llama_json({"\u2581"}, {}), "sample")),
          .ends = {decoding::FakeGenerator::kEnd}};
}

struct GatewayTest : testing::Test {
  static net::HttpRequest post(const std::string& path, const Json& body) {
    return {.path = path, .method = "POST", .body = body.dump(), .has_gone = [] { return false; }};
  }
  SystemClock clock;
  Gateway gateway{{fake_model()}, {}, {}, clock};
};

TEST_F(GatewayTest, AStreamEndsWithDone) {
  const auto reply = gateway.reply(post("/v1/completions", {{"model", "fake"},
                                                            {"prompt", "abc"},
                                                            {"temperature", 0},
                                                            {"stream", true},
                                                            {"max_tokens", 2}}));
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.type, "text/event-stream");
  TextSink sink;
  reply.stream(sink);
  EXPECT_THAT(sink.text, StartsWith("data: {\"id\":\"cmpl-"));
  EXPECT_THAT(sink.text, HasSubstr("\"text\":\"d\""));
  EXPECT_THAT(sink.text, testing::EndsWith("\n\ndata: [DONE]\n\n"));
}

TEST_F(GatewayTest, WhatTheGeneratorRefusesIsSaidInPlaceOfAStream) {
  Gateway busy({fake_model({.max_running = 0})}, {}, {}, clock);
  const auto reply =
      busy.reply(post("/v1/completions", {{"model", "fake"}, {"prompt", "abc"}, {"stream", true}}));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.fields, (decltype(reply.fields){{"Retry-After", "3"}}));
  EXPECT_EQ(Json::parse(reply.body)["error"]["message"], "too many texts are made");
}

TEST_F(GatewayTest, AChatNeedsATemplate) {
  const auto reply = gateway.reply(
      post("/v1/chat/completions",
           {{"model", "fake"}, {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("no_chat_template"));
}

TEST_F(GatewayTest, ThePageNeedsNothingFromElsewhere) {
  const auto reply = gateway.reply({.path = "/"});
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, StartsWith("<!doctype html>"));
  for (const char* elsewhere : {"http:", "https:", "//cdn", "@import", " src="}) {
    EXPECT_THAT(reply.body, testing::Not(HasSubstr(elsewhere)));
  }
}

TEST_F(GatewayTest, MetricsKnowNoPathsOfStrangers) {
  EXPECT_EQ(gateway.reply({.path = "/v2/a\nb"}).status, 404);
  EXPECT_THAT(gateway.reply({.path = "/metrics"}).body,
              HasSubstr("atoll_requests_total{endpoint=\"other\",status=\"404\"} 1"));
}

TEST(ServiceTest, OtherMachinesAskWithKeysAndOverTlsOrWhereThatIsSaid) {
  const SystemClock clock;
  const auto fault = [&](ServiceOptions options) -> std::string {
    options.listen = "0.0.0.0:0";
    options.models = {fake_model()};
    try {
      const Service service(std::move(options), clock);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(fault({}), HasSubstr("give API keys"));
  EXPECT_THAT(fault({.keys = {{"a", "0123456789abcdef"}}}), HasSubstr("in the clear"));
  EXPECT_EQ(fault({.insecure = true}), "");
  EXPECT_THAT(fault({.certificate_file = "x", .insecure = true}), HasSubstr("go together"));
}

}  // namespace
}  // namespace atl::openai
