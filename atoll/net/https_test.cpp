// The server for readers, asked by our client, by OpenSSL's own, and by who keeps no protocol.
#include "atoll/net/https.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <csignal>
#include <thread>

#include "atoll/identity/authority.h"
#include "atoll/net/http_client.h"
#include "atoll/net/http_server.h"
#include "atoll/net/trust.h"

namespace atl::net {
namespace {

using identity::Authority;
using identity::Role;
using identity::WallTime;
using std::chrono::hours;
using testing::HasSubstr;
using testing::StartsWith;

constexpr Duration kHang = std::chrono::seconds(30);  // Only what hangs takes as long.

WallTime wall_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

identity::Credentials member_of(const Authority& authority, Role role, const std::string& name,
                                WallTime now = wall_now()) {
  const auto key = identity::Key::generate();
  const auto certificate =
      authority.sign(key.request(), {authority.fingerprint(), role, name}, hours(1), now);
  return {authority.certificate_pem(), certificate.value(), key.pem()};
}

identity::Credentials host_of(const Authority& authority, const std::vector<std::string>& hosts,
                              WallTime now = wall_now()) {
  const auto key = identity::Key::generate();
  return {authority.certificate_pem(), authority.sign_web(key, hosts, hours(1), now).value(),
          key.pem()};
}

/// Says who asked.
HttpReply reply_to(const HttpRequest& request) {
  if (request.path == "/big") return {.body = std::string(size_t{32} << 20, 'x')};
  if (request.path == "/no") return {.status = 401, .challenge = "Basic realm=\"x\""};
  return {.body = request.host + " " + request.authorization + " " +
                  (request.certificate ? request.certificate->peer.name : "nobody")};
}

struct HttpsTest : testing::Test {
  HttpsTest() { std::signal(SIGPIPE, SIG_IGN); }  // OpenSSL's clients write to what was closed.
  std::unique_ptr<HttpServer> start(HttpLimits limits = {}) {
    auto server = HttpServer::start("127.0.0.1:0", reply_to, clock, limits, host);
    EXPECT_TRUE(server) << server.error().message;
    return std::move(*server);
  }
  HttpsIdentity pinned() const { return {.authority_pem = authority.certificate_pem()}; }
  static Result<HttpReply> ask(const std::string& address, const HttpsIdentity& who,
                               size_t max_bytes = 1000, const std::string& path = "/") {
    return https_get(address, path, who, kHang, max_bytes);
  }
  /// Why it is not answered.
  static std::string fault(const std::string& address, const HttpsIdentity& who) {
    const auto reply = ask(address, who);
    return reply ? "answered: " + reply->body : reply.error().message;
  }

  SystemClock clock;
  Authority authority = Authority::create("ours", wall_now());
  std::shared_ptr<HttpsHost> host =
      std::make_shared<HttpsHost>(host_of(authority, {"127.0.0.1", "localhost"}));
};

/// OpenSSL's client with settings of its own.
class RawClient {
 public:
  explicit RawClient(const HttpServer& server, int version = TLS1_3_VERSION)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(parse_address(server.address())->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{.tv_sec = 30};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    SSL_CTX_set_min_proto_version(context_.get(), version);
    SSL_CTX_set_max_proto_version(context_.get(), version);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_.get());
  }

  SSL* ssl() { return ssl_.get(); }
  int socket() const { return socket_.get(); }
  bool greet() { return SSL_connect(ssl_.get()) == 1; }
  bool send(const std::string& text) {
    return SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) ==
           static_cast<int>(text.size());
  }
  std::string read_all() {
    std::string out;
    char buffer[4096];
    for (int got; (got = SSL_read(ssl_.get(), buffer, sizeof buffer)) > 0;) {
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }
  /// What comes without TLS, until the server hangs up.
  std::string receive_all() const {
    std::string out;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(socket_.get(), buffer, sizeof buffer, 0)) > 0;) {
      out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }

 private:
  Descriptor socket_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
};

TEST_F(HttpsTest, AReaderAsksWithATokenOrACertificateOrNeither) {
  const auto server = start();
  HttpsIdentity who = pinned();
  EXPECT_EQ(ask(server->address(), who)->body, "127.0.0.1  nobody");
  who.token = "a-token";
  EXPECT_EQ(ask(server->address(), who)->body, "127.0.0.1 Bearer a-token nobody");
  HttpsIdentity member = pinned();
  member.member = member_of(authority, Role::kReader, "anna");
  EXPECT_EQ(ask(server->address(), member)->body, "127.0.0.1  anna");
  const HttpsIdentity by_fingerprint{.fingerprint = authority.fingerprint()};
  EXPECT_EQ(ask(server->address(), by_fingerprint)->body, "127.0.0.1  nobody");
  const std::string port = server->address().substr(server->address().find(':'));
  EXPECT_EQ(ask("localhost" + port, pinned())->body, "127.0.0.1  nobody");
}

TEST_F(HttpsTest, LongAnswersArriveWholeAndAreBounded) {
  const auto server = start({.deadline = kHang});
  EXPECT_EQ(ask(server->address(), pinned(), size_t{33} << 20, "/big")->body.size(),
            size_t{32} << 20);
  EXPECT_THAT(ask(server->address(), pinned(), 1000, "/big").error().message,
              HasSubstr("more than 1000 bytes"));
}

TEST_F(HttpsTest, AReplyMaySayHowToAuthenticate) {
  const auto server = start();
  RawClient client(*server);
  ASSERT_TRUE(client.greet());
  client.send("GET /no HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_all(), testing::AllOf(StartsWith("HTTP/1.1 401"),
                                                HasSubstr("WWW-Authenticate: Basic realm=\"x\"")));
}

TEST_F(HttpsTest, NothingIsSentToWhoHasNotProvedToBeTheHost) {
  const auto server = start();
  const Authority other = Authority::create("ours", wall_now());
  HttpsIdentity who{.authority_pem = other.certificate_pem(), .token = "a-token"};
  EXPECT_THAT(fault(server->address(), who), HasSubstr("certificate is not taken"));
  const HttpsIdentity other_fingerprint{.fingerprint = other.fingerprint()};
  EXPECT_THAT(fault(server->address(), other_fingerprint), HasSubstr("is not taken"));
  host->renew(host_of(authority, {"ours.example.org", "192.0.2.1"}));
  EXPECT_THAT(fault(server->address(), pinned()), HasSubstr("IP address mismatch"));
  // Members have certificates of the same authority, and choose their names.
  for (const char* name : {"127.0.0.1", "localhost"}) {
    host->renew(member_of(authority, Role::kIsland, name));
    const std::string port = server->address().substr(server->address().find(':'));
    EXPECT_THAT(fault(name + port, pinned()), HasSubstr("mismatch"));
    EXPECT_THAT(fault(name + port, {.fingerprint = authority.fingerprint()}),
                HasSubstr("mismatch"));
  }
  host->renew(host_of(authority, {"127.0.0.1"}, wall_now() - hours(24)));
  EXPECT_THAT(fault(server->address(), pinned()), HasSubstr("expired"));
}

TEST_F(HttpsTest, CertificatesThatDoNotHoldEndTheGreeting) {
  const auto server = start();
  HttpsIdentity who = pinned();
  who.member = member_of(Authority::create("theirs", wall_now()), Role::kReader, "anna");
  EXPECT_THAT(fault(server->address(), who), HasSubstr("does not take this side's certificate"));
  who.member = member_of(authority, Role::kReader, "anna", wall_now() - hours(24));
  EXPECT_THAT(fault(server->address(), who), HasSubstr("expired"));
  who.member = host_of(authority, {"127.0.0.1"});
  EXPECT_THAT(fault(server->address(), who), HasSubstr("does not take this side's certificate"));
}

/// A web server's certificate is no coordinator's, for islands and for who joins.
TEST_F(HttpsTest, TheWebServerIsNobodyInTheRun) {
  const auto server = start();
  const auto greet = [&](const Trust& trust) {
    RawClient client(*server);  // For its socket.
    const auto stream = trust.calling_stream(make_plain_stream(Descriptor(::dup(client.socket()))));
    return stream->greet();
  };
  const Trust island(member_of(authority, Role::kIsland, "reef"));
  EXPECT_EQ(greet(island).outcome, Moved::Outcome::kEnded);  // Another protocol (ALPN).
  EXPECT_EQ(greet(*Trust::stranger(authority.fingerprint())).outcome, Moved::Outcome::kEnded);
}

TEST_F(HttpsTest, OlderVersionsOfTlsAndPlainTextGetNothing) {
  const auto server = start();
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION}) {
    EXPECT_FALSE(RawClient(*server, version).greet()) << version;
  }
  EXPECT_TRUE(RawClient(*server).greet());
  const RawClient plain(*server);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ::send(plain.socket(), request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_THAT(plain.receive_all(), testing::Not(HasSubstr("HTTP")));
}

TEST_F(HttpsTest, OfTheProtocolsThatBrowsersOfferOneIsSpoken) {
  const auto server = start();
  RawClient browser(*server);
  const unsigned char both[] = "\x02h2\x08http/1.1";
  SSL_set_alpn_protos(browser.ssl(), both, sizeof both - 1);
  EXPECT_TRUE(browser.greet());
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(browser.ssl(), &chosen, &size);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(chosen), size), "http/1.1");
  RawClient newer(*server);
  SSL_set_alpn_protos(newer.ssl(), both, 3);
  EXPECT_FALSE(newer.greet());
}

TEST_F(HttpsTest, NoSessionIsResumed) {
  const auto server = start();
  RawClient client(*server);
  ASSERT_TRUE(client.greet());
  client.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(SSL_SESSION_is_resumable(SSL_get0_session(client.ssl())), 0);
}

TEST_F(HttpsTest, TheDeadlineEndsGreetingsAndWhatComesAfterThem) {
  const auto server =
      start({.head_bytes = size_t{1} << 30, .deadline = std::chrono::milliseconds(300)});
  const Time begin = clock.now();
  const RawClient silent(*server);
  EXPECT_EQ(silent.receive_all(), "");
  const RawClient slow(*server);  // A record's header, and then its bytes one by one.
  const char head[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01};
  ::send(slow.socket(), head, sizeof head, MSG_NOSIGNAL);
  while (clock.now() - begin < kHang && ::send(slow.socket(), "", 1, MSG_NOSIGNAL) == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  RawClient trickling(*server);
  ASSERT_TRUE(trickling.greet());
  trickling.send("GET / HTTP/1.1\r\nA: ");
  while (clock.now() - begin < kHang && trickling.send("a")) std::this_thread::yield();
  RawClient rekeying(*server);  // Bytes of TLS that are none of HTTP.
  ASSERT_TRUE(rekeying.greet());
  do {
    SSL_key_update(rekeying.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED);
  } while (clock.now() - begin < kHang && SSL_do_handshake(rekeying.ssl()) == 1);
  EXPECT_LT(clock.now() - begin, kHang);
  EXPECT_EQ(ask(server->address(), pinned())->status, 200);
}

TEST_F(HttpsTest, LongRequestsAreCutOff) {
  const auto server = start({.head_bytes = 2000, .deadline = kHang});
  const std::string block(1000, 'a');
  for (const std::string& head : {std::string("GET /"), std::string("GET / HTTP/1.1\r\nA: ")}) {
    RawClient client(*server);
    ASSERT_TRUE(client.greet());
    client.send(head);
    int num_blocks = 0;
    while (num_blocks < 100'000 && client.send(block)) ++num_blocks;
    EXPECT_LT(num_blocks, 100'000) << head;
  }
  EXPECT_EQ(ask(server->address(), pinned())->status, 200);
}

TEST_F(HttpsTest, OneAddressCannotTakeAllPlaces) {
  const auto server = start({.threads = 8, .deadline = kHang * 10, .per_address = 2});
  std::vector<std::unique_ptr<RawClient>> hanging;
  for (int i = 0; i < 20; ++i) hanging.push_back(std::make_unique<RawClient>(*server));
  int num_closed = 0;
  for (int i = 2; i < 20; ++i) num_closed += hanging[i]->receive_all().empty() ? 1 : 0;
  EXPECT_EQ(num_closed, 18);
}

TEST_F(HttpsTest, ItMayListenBeyondThisMachineAndEndsAtOnce) {
  auto server = HttpServer::start("0.0.0.0:0", reply_to, clock, {.deadline = kHang * 10}, host);
  ASSERT_TRUE(server);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<RawClient>(**server));
  EXPECT_TRUE(clients[0]->greet());
  const Time begin = clock.now();
  server->reset();
  EXPECT_LT(clock.now() - begin, kHang);
}

}  // namespace
}  // namespace atl::net
