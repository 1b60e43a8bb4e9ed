#include "atoll/net/http_message.h"

#include <gtest/gtest.h>

#include <string>

namespace atl::net {
namespace {

using State = HttpReader::State;

constexpr HttpReader::Limits kLimits{.head_bytes = 200, .body_bytes = 20};

int status_of(const std::string& bytes) {
  HttpReader reader(kLimits);
  return reader.add(bytes) == State::kBad ? reader.status() : 0;
}

TEST(HttpReaderTest, ReadsARequestHoweverItIsCut) {
  const std::string bytes =
      "\r\nPOST /v1/a%20b?x=%20 HTTP/1.1\r\nHost: x\r\nCONTENT-length:  5 \r\nA: 1\r\nA: "
      "2\r\n\r\nhello";
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    HttpReader reader(kLimits);
    EXPECT_EQ(reader.add(bytes.substr(0, cut)), State::kMore) << cut;
    ASSERT_EQ(reader.add(bytes.substr(cut)), State::kWhole) << cut;
    const HttpMessage message = reader.take();
    EXPECT_EQ(message.method, "POST");
    EXPECT_EQ(message.path, "/v1/a b");
    EXPECT_EQ(message.body, "hello");
    EXPECT_EQ(message.field("a"), "1, 2");
    EXPECT_EQ(message.field("b"), "");
    EXPECT_TRUE(message.keeps_alive);
    EXPECT_FALSE(reader.has_begun());
  }
}

TEST(HttpReaderTest, ReadsChunksHoweverTheyAreCut) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n";
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    HttpReader reader(kLimits);
    reader.add(bytes.substr(0, cut));
    ASSERT_EQ(reader.add(bytes.substr(cut)), State::kWhole) << cut << reader.fault();
    EXPECT_EQ(reader.take().body, "abc0123456789");
  }
}

TEST(HttpReaderTest, RequestsFollowEachOtherOnOneConnection) {
  HttpReader reader(kLimits);
  const std::string first = "POST /1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nok";
  ASSERT_EQ(reader.add(first + "GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n" + "GET /3"),
            State::kWhole);
  EXPECT_EQ(reader.take().path, "/1");
  ASSERT_EQ(reader.state(), State::kWhole);
  const HttpMessage second = reader.take();
  EXPECT_EQ(second.path, "/2");
  EXPECT_FALSE(second.keeps_alive);
  EXPECT_EQ(reader.state(), State::kMore);
  EXPECT_TRUE(reader.has_begun());
}

TEST(HttpReaderTest, OldClientsKeepNoConnectionUnlessTheySaySo) {
  HttpReader reader(kLimits);
  reader.add("GET / HTTP/1.0\r\n\r\n");
  HttpMessage message = reader.take();
  EXPECT_TRUE(message.is_version_1_0);
  EXPECT_FALSE(message.keeps_alive);
  reader.add("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
  EXPECT_TRUE(reader.take().keeps_alive);
}

TEST(HttpReaderTest, LeaveToSendABodyIsGivenOnce) {
  HttpReader reader(kLimits);
  reader.add("POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(reader.must_say_continue());
  EXPECT_FALSE(reader.must_say_continue());
  EXPECT_EQ(reader.add("ab"), State::kWhole);
}

TEST(HttpReaderTest, RefusesWhatIsMalformedOrTooLong) {
  EXPECT_EQ(status_of("hello\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/2\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET x HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA : 1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: 1\r\n folded\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /" + std::string(300, 'a')), 431);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 21\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n";
  EXPECT_EQ(status_of(chunked + "Content-Length: 3\r\n\r\n"), 400);
  EXPECT_EQ(status_of(chunked + "\r\nffffffffffffffff\r\n"), 413);
  EXPECT_EQ(status_of(chunked + "\r\nx\r\n"), 400);
  EXPECT_EQ(status_of(chunked + "\r\n1\r\nab\r\n"), 400);
  EXPECT_EQ(status_of(chunked + "\r\n" + std::string(300, '0')), 400);
  EXPECT_EQ(status_of(chunked + "\r\n0\r\nA: 1\r\n"), 400);
}

TEST(HttpHeadTest, SaysWhatItIs) {
  EXPECT_EQ(http_head(429, {{"Retry-After", "2"}}),
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\n\r\n");
  EXPECT_EQ(http_chunk("0123456789"), "a\r\n0123456789\r\n");
  EXPECT_EQ(http_chunk(""), "0\r\n\r\n");
}

}  // namespace
}  // namespace atl::net
