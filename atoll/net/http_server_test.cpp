// Clients here are plain sockets: nothing of the library that the server uses.
#include "atoll/net/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "atoll/net/address.h"

namespace atl::net {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Duration kHang = std::chrono::seconds(30);  // Only what hangs takes as long.

class Client {
 public:
  explicit Client(const HttpServer& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(parse_address(server.address())->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{.tv_sec = 30};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;

  /// False once the server does not take more.
  bool send(const std::string& text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  std::string read_all() {
    std::string out;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(socket_, buffer, sizeof buffer, 0)) > 0;) {
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }
  /// What comes until it ends with that; all, if it never does.
  std::string read_until(const std::string& end) {
    std::string out;
    char byte = 0;
    while (!out.ends_with(end) && ::recv(socket_, &byte, 1, 0) == 1) out += byte;
    return out;
  }
  std::string get(const std::string& path) {
    send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return read_all();
  }

 private:
  int socket_;
};

class HttpServerTest : public testing::Test {
 protected:
  std::unique_ptr<HttpServer> start(HttpLimits limits = {}) {
    auto server = HttpServer::start("127.0.0.1:0", handler(), clock, limits);
    EXPECT_TRUE(server) << server.error().message;
    return std::move(*server);
  }
  static HttpHandler handler() {
    return [](const HttpRequest& request) -> HttpReply {
      const std::string& path = request.path;
      if (path == "/big") return {.body = std::string(size_t{32} << 20, 'x')};
      if (path == "/echo") return {.body = request.method + " " + request.body};
      if (path == "/throw") throw std::runtime_error("a secret");
      if (path == "/stream") {
        return {.stream = [](HttpSink& sink) {
          for (const char* part : {"one ", "", "two"}) sink.write(part);
        }};
      }
      if (path == "/here") return {.type = "application/json", .body = "{}\n"};
      return {.status = 404, .body = "there is only /here\n"};
    };
  }

  SystemClock clock;
};

TEST_F(HttpServerTest, AnswersWithTypeAndLengthAndEndsTheConnection) {
  const auto server = start();
  const std::string reply = Client(*server).get("/here?x=1");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(reply, testing::EndsWith("\r\n\r\n{}\n"));
  EXPECT_THAT(Client(*server).get("/nowhere"),
              testing::AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("there is only /here")));
  EXPECT_THAT(Client(*server).get("/%0a/(((a*)*)*)*b"), StartsWith("HTTP/1.1 404"));
  Client post(*server);
  post.send("POST /here HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(post.read_all(), StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpServerTest, TwentyClientsAtOnceWhileOthersHang) {
  const auto server = start({.deadline = kHang * 10});
  std::vector<std::unique_ptr<Client>> hanging;
  for (int i = 0; i < 30; ++i) {
    hanging.push_back(std::make_unique<Client>(*server));
    if (i % 2 == 0) hanging.back()->send("GET /here HT");
  }
  std::atomic<int> num_answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back([&] {
      if (Client(*server).get("/here").starts_with("HTTP/1.1 200")) ++num_answered;
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(num_answered, 20);
}

TEST_F(HttpServerTest, MoreHangingClientsThanThreadsOnlyDelayTheOthers) {
  const auto server = start({.threads = 2, .deadline = std::chrono::milliseconds(100)});
  std::vector<std::unique_ptr<Client>> hanging;
  for (int i = 0; i < 8; ++i) hanging.push_back(std::make_unique<Client>(*server));
  EXPECT_THAT(Client(*server).get("/here"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ADeadlineEndsWhoTricklesAndWhoReadsNothing) {
  const auto server =
      start({.head_bytes = size_t{1} << 30, .deadline = std::chrono::milliseconds(200)});
  Client trickling(*server);
  const Time begin = clock.now();
  trickling.send("GET /here HTTP/1.1\r\nA: ");
  while (clock.now() - begin < kHang && trickling.send("a")) std::this_thread::yield();
  EXPECT_LT(clock.now() - begin, kHang);
  Client deaf(*server);
  deaf.send("GET /big HTTP/1.1\r\n\r\n");
  EXPECT_THAT(Client(*server).get("/here"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ARequestThatIsNotWholeHasOneDeadlineFromItsBegin) {
  constexpr auto kDeadline = std::chrono::milliseconds(400);
  const auto server = start({.deadline = kDeadline});
  Client half(*server);
  const Time begin = clock.now();
  half.send("GET /here HTTP/1.1\r\nA: ");
  while (clock.now() - begin < kHang && half.send("a")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(clock.now() - begin, kDeadline);
  EXPECT_LT(clock.now() - begin, 2 * kDeadline);
}

TEST_F(HttpServerTest, LongRequestsAreCutOffWithoutBeingKept) {
  const auto server = start({.head_bytes = 2000, .deadline = kHang});
  const std::string block(1000, 'a');
  for (const std::string& head :
       {std::string("GET /"), std::string("GET /here HTTP/1.1\r\nA: "), std::string("no method"),
        std::string("POST /here HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n")}) {
    Client client(*server);
    client.send(head);
    int num_blocks = 0;
    while (num_blocks < 100'000 && client.send(block)) ++num_blocks;
    EXPECT_LT(num_blocks, 100'000) << head;  // The server closed long before 100 MB.
  }
  EXPECT_THAT(Client(*server).get("/here"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, EndsAtOnceWhateverItsClientsDo) {
  auto server = start({.threads = 1, .deadline = kHang * 10});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<Client>(*server));
    clients.back()->send(i == 0 ? "GET /big HTTP/1.1\r\n\r\n" : "GET /he");
  }
  const Time begin = clock.now();
  server.reset();
  EXPECT_LT(clock.now() - begin, kHang);
}

constexpr HttpLimits kApi{.threads = 300,
                          .connections = 1000,
                          .body_bytes = 100,
                          .deadline = kHang,
                          .keep_alive = kHang,
                          .per_address = 1000};

TEST_F(HttpServerTest, RequestsWithBodiesFollowEachOtherOnOneConnection) {
  const auto server = start(kApi);
  Client client(*server);
  for (int i = 0; i < 3; ++i) {
    client.send("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_THAT(client.read_until("POST hello"), HasSubstr("Connection: keep-alive\r\n"));
  }
  client.send("GET /stream HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.read_all(),
              testing::AllOf(HasSubstr("Transfer-Encoding: chunked\r\n"),
                             testing::EndsWith("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")));
}

TEST_F(HttpServerTest, ToOldClientsAStreamEndsWithTheConnection) {
  const auto server = start(kApi);
  Client client(*server);
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.read_all(), testing::EndsWith("Connection: close\r\n\r\none two"));
}

TEST_F(HttpServerTest, RefusalsSayWhy) {
  const auto server = start(kApi);
  Client large(*server);
  large.send("POST /echo HTTP/1.1\r\nContent-Length: 101\r\n\r\n");
  EXPECT_THAT(large.read_all(), testing::AllOf(StartsWith("HTTP/1.1 413"), HasSubstr("101 bytes")));
  Client broken(*server);
  broken.send("throw");
  broken.send("\r\n\r\n");
  EXPECT_THAT(broken.read_all(), StartsWith("HTTP/1.1 400"));
  Client failing(*server);
  failing.send("GET /throw HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(failing.read_all(),
              testing::AllOf(StartsWith("HTTP/1.1 500"), testing::Not(HasSubstr("secret"))));
}

TEST_F(HttpServerTest, HandlersHearThatTheClientHasGone) {
  std::atomic<int> num_gone = 0;
  const auto wait_for = [&](const std::function<bool()>& has_gone) {
    for (const Time begin = clock.now(); !has_gone() && clock.now() - begin < kHang;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (has_gone()) ++num_gone;
  };
  auto server = HttpServer::start(
      "127.0.0.1:0",
      [&](const HttpRequest& request) -> HttpReply {
        if (request.path == "/wait") wait_for(request.has_gone);
        return {.stream = [&, has_gone = request.has_gone](HttpSink& sink) {
          sink.write("hello");
          wait_for(has_gone);
        }};
      },
      clock, kApi);
  ASSERT_TRUE(server);
  {
    Client waiting(**server);
    waiting.send("GET /wait HTTP/1.1\r\n\r\n");
    Client streaming(**server);
    streaming.send("GET /stream HTTP/1.1\r\n\r\n");
    streaming.read_until("hello");
    EXPECT_EQ(num_gone, 0);
  }
  const Time begin = clock.now();
  while (num_gone < 2 && clock.now() - begin < kHang) std::this_thread::yield();
  EXPECT_GE(num_gone, 2);
}

TEST_F(HttpServerTest, AnswersAtOnceBesideTwoHundredStreamsAndTwoHundredSlowClients) {
  std::atomic<bool> is_over = false;
  auto server = HttpServer::start(
      "127.0.0.1:0",
      [&](const HttpRequest& request) -> HttpReply {
        if (request.path == "/health") return {.body = "ok"};
        return {.stream = [&](HttpSink& sink) {
          while (!is_over && sink.write("x")) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }};
      },
      clock, kApi);
  ASSERT_TRUE(server);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(**server));
    clients.back()->send("GET /stream HTTP/1.1\r\n\r\n");
    clients.back()->read_until("1\r\nx");
    clients.push_back(std::make_unique<Client>(**server));
    clients.back()->send("GET /health HT");
  }
  Duration longest{};
  for (int i = 0; i < 20; ++i) {
    const Time begin = clock.now();
    Client client(**server);
    client.send("GET /health HTTP/1.1\r\n\r\n");
    EXPECT_THAT(client.read_until("\r\n\r\nok"), StartsWith("HTTP/1.1 200"));
    longest = std::max(longest, clock.now() - begin);
  }
  EXPECT_LT(seconds(longest), 2);  // Of a busy machine; at rest it takes a millisecond.
  is_over = true;
}

TEST_F(HttpServerTest, RefusesAddressesBeyondThisMachineAndPortsInUse) {
  const auto server = start();
  const auto second = HttpServer::start(server->address(), handler(), clock);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr(server->address() + ": Address already in use"));
  for (const char* address : {"0.0.0.0:0", "192.168.1.5:80", "[::]:0", "example.org:80", "x"}) {
    EXPECT_FALSE(HttpServer::start(address, handler(), clock)) << address;
  }
}

}  // namespace
}  // namespace atl::net
