// A relay and bare sockets: its limits, and what it does with those who do not keep to the rules.
#include "atoll/net/relay.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "atoll/net/circuit.h"
#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// The two ends of a connection over loopback; the second one does not block.
std::pair<Descriptor, Descriptor> connected_sockets() {
  const Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress at = *numeric_address({.host = "127.0.0.1", .port = 0});
  EXPECT_EQ(::bind(listening.get(), at.get(), at.size), 0);
  EXPECT_EQ(::listen(listening.get(), 1), 0);
  at = local_address(listening.get());
  Descriptor here(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(here.get(), at.get(), at.size), 0);
  Descriptor there(::accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(here.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return {std::move(here), std::move(there)};
}

/// A member, in the clear.
struct Caller {
  explicit Caller(Relay& relay) {
    auto [here, there] = connected_sockets();
    socket = std::move(here);
    relay.take(make_plain_stream(std::move(there)), nullptr, nullptr);
  }
  Caller(Relay& relay, int circuit, bool calls) : Caller(relay) {
    say(encode(CircuitRequest{.circuit = {static_cast<std::byte>(circuit)},
                              .calls = calls,
                              .local = "192.0.2.1:" + std::to_string(circuit)}));
  }
  void say(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
  }
  /// So many bytes, or what there was when it ended.
  Bytes heard(size_t size) const {
    Bytes all(size);
    size_t count = 0;
    while (count < size) {
      const ssize_t got = ::recv(socket.get(), all.data() + count, size - count, 0);
      if (got <= 0) break;
      count += static_cast<size_t>(got);
    }
    all.resize(count);
    return all;
  }
  /// "none" where there is none.
  CircuitAnswer answer() const {
    const Bytes bytes = heard(kCircuitAnswerBytes);
    if (bytes.size() != kCircuitAnswerBytes) return {.refusal = "none"};
    return decode_circuit_answer(std::span(bytes).first<kCircuitAnswerBytes>())
        .value_or(CircuitAnswer{.refusal = "none"});
  }
  bool has_ended() const { return heard(1).empty(); }

  Descriptor socket;
};

struct RelayTest : testing::Test {
  Relay& make(const RelayLimits& limits) {
    return *(relay = std::make_unique<Relay>(limits, clock));
  }

  SystemClock clock;
  std::unique_ptr<Relay> relay;
};

Bytes text(std::string_view words) {
  const auto bytes = as_byte_span(words);
  return {bytes.begin(), bytes.end()};
}

TEST(CircuitTest, RecordsAreReadStrictly) {
  const CircuitRequest request{.circuit = {std::byte{3}}, .calls = true, .local = "10.0.0.1:7"};
  auto bytes = encode(request);
  EXPECT_EQ(decode_circuit_request(bytes), request);
  bytes.back() = std::byte{1};
  EXPECT_FALSE(decode_circuit_request(bytes));
  bytes = encode(request);
  bytes[16] = std::byte{2};
  EXPECT_FALSE(decode_circuit_request(bytes));
  bytes = encode(CircuitRequest{.local = "no address"});
  EXPECT_FALSE(decode_circuit_request(bytes));
  const CircuitAnswer met{.observed = "[2001:db8::1]:80", .local = "10.0.0.1:7"};
  EXPECT_EQ(decode_circuit_answer(encode(met)), met);
  const CircuitAnswer refused{.refusal = "no"};
  EXPECT_EQ(decode_circuit_answer(encode(refused)), refused);
  EXPECT_FALSE(decode_circuit_answer(encode(CircuitAnswer{})));
}

TEST_F(RelayTest, TellsEachWhereTheOtherIsAndPassesOnUntilOneEnds) {
  make({});
  auto one = std::make_unique<Caller>(*relay, 1, true);
  const Caller other(*relay, 1, false);
  const CircuitAnswer answer = one->answer();
  EXPECT_EQ(answer.observed, local_address(other.socket.get()).address().text());
  EXPECT_EQ(answer.local, "192.0.2.1:1");
  EXPECT_EQ(other.answer().observed, local_address(one->socket.get()).address().text());
  EXPECT_EQ(relay->traffic().num_circuits, 1);
  other.say(text("back"));
  EXPECT_EQ(one->heard(4), text("back"));
  one->say(Bytes(3'000'000, std::byte{5}));
  one.reset();
  EXPECT_TRUE(other.heard(4'000'000) == Bytes(3'000'000, std::byte{5}));
  EXPECT_EQ(relay->traffic().bytes, 3'000'004);
  EXPECT_EQ(relay->traffic().num_circuits, 0);
  EXPECT_EQ(relay->traffic().num_circuits_ever, 1);
}

TEST_F(RelayTest, HoldsLittleOfWhatNobodyTakes) {
  make({});
  const Caller one(*relay, 1, true);
  const Caller other(*relay, 1, false);
  one.answer();
  other.answer();
  const timeval moment{.tv_sec = 0, .tv_usec = 200'000};
  ::setsockopt(one.socket.get(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
  const Bytes block(1'000'000, std::byte{9});
  size_t num_sent = 0;
  while (true) {
    const ssize_t sent = ::send(one.socket.get(), block.data(), block.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    num_sent += static_cast<size_t>(sent);
    ASSERT_LT(num_sent, size_t{100} << 20) << "it takes all that it is given";
  }
  EXPECT_LT(relay->traffic().bytes, static_cast<int64_t>(num_sent));  // The rest waits outside.
  EXPECT_EQ(other.heard(num_sent).size(), num_sent);
}

TEST_F(RelayTest, AThirdIsRefusedAndSoAreTwoOfAKind) {
  make({});
  const Caller one(*relay, 1, true);
  EXPECT_EQ(one.socket.get() >= 0, true);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_THAT(Caller(*relay, 1, true).answer().refusal, HasSubstr("both sides want to be"));
  const Caller other(*relay, 1, false);
  EXPECT_EQ(one.answer().refusal, "");
  const Caller third(*relay, 1, true);
  EXPECT_EQ(third.answer().refusal, "that circuit is taken");
  EXPECT_TRUE(third.has_ended());
  other.answer();
  one.say(text("on"));
  EXPECT_EQ(other.heard(2), text("on"));
}

TEST_F(RelayTest, WhoIsAloneOrSaysNothingIsToldAfterAWhile) {
  make({.partner_patience = milliseconds(100)});
  const Caller alone(*relay, 1, true);
  const Caller silent(*relay);
  EXPECT_EQ(alone.answer().refusal, "the other side did not come");
  EXPECT_EQ(silent.answer().refusal, "it said nothing");
  EXPECT_TRUE(alone.has_ended());
}

TEST_F(RelayTest, AnIdleCircuitEnds) {
  make({.idle_patience = milliseconds(200)});
  const Caller one(*relay, 1, true);
  const Caller other(*relay, 1, false);
  one.answer();
  other.answer();
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(milliseconds(100));
    one.say(text("x"));
    EXPECT_EQ(other.heard(1), text("x"));
  }
  EXPECT_TRUE(one.has_ended());
  EXPECT_TRUE(other.has_ended());
}

TEST_F(RelayTest, WhoLeavesWhileItWaitsLeavesNoCircuit) {
  make({.num_circuits = 1});
  for (int i = 0; i < 5; ++i) {
    {
      const Caller left(*relay, i, true);
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
  const Caller one(*relay, 9, true);
  const Caller other(*relay, 9, false);
  EXPECT_EQ(one.answer().refusal, "");
}

TEST_F(RelayTest, ThereAreOnlySoManyCircuits) {
  make({.num_circuits = 2});
  const Caller first(*relay, 1, true);
  const Caller second(*relay, 2, true);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(Caller(*relay, 3, true).answer().refusal, "all 2 circuits are taken");
  const Caller other(*relay, 2, false);
  EXPECT_EQ(second.answer().refusal, "");
}

TEST_F(RelayTest, OneMemberHasOnlySoMany) {
  make({.circuits_per_member = 2});
  const Caller first(*relay, 1, true);
  const Caller second(*relay, 2, true);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(Caller(*relay, 3, true).answer().refusal, "a member has at most 2 circuits here");
  std::vector<std::unique_ptr<Caller>> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<Caller>(*relay));
  EXPECT_TRUE(silent.back()->has_ended());  // It is not even heard.
}

TEST_F(RelayTest, WhereItIsToldOfCircuitsTwoMeetInNoOthers) {
  make({.only_expected = true, .partner_patience = milliseconds(500)});
  relay->expect({std::byte{1}});
  const Caller one(*relay, 1, true);
  const Caller other(*relay, 1, false);
  EXPECT_EQ(one.answer().refusal, "");
  EXPECT_EQ(other.answer().refusal, "");
  const Caller late_one(*relay, 2, true);
  const Caller late_other(*relay, 2, false);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(relay->traffic().num_circuits, 1);
  relay->expect({std::byte{2}});  // By another line, which may be slower.
  EXPECT_EQ(late_one.answer().refusal, "");
  EXPECT_EQ(late_other.answer().refusal, "");
  const Caller stranger(*relay, 3, true);
  const Caller friend_of_it(*relay, 3, false);
  EXPECT_THAT(stranger.answer().refusal, HasSubstr("no such circuit"));
  EXPECT_TRUE(friend_of_it.has_ended());
  EXPECT_EQ(relay->traffic().num_circuits_ever, 2);
}

TEST_F(RelayTest, WhatIsNoRequestEndsTheConnection) {
  make({});
  const Caller caller(*relay);
  caller.say(Bytes(kCircuitRequestBytes, std::byte{0xff}));
  EXPECT_TRUE(caller.has_ended());
  EXPECT_EQ(relay->traffic().num_circuits_ever, 0);
}

TEST_F(RelayTest, RatesAreKept) {
  for (const bool in_all : {true, false}) {
    make({.bytes_per_second = in_all ? 2e6 : 0, .circuit_bytes_per_second = in_all ? 0 : 2e6});
    const Caller one(*relay, 1, true);
    const Caller other(*relay, 1, false);
    one.answer();
    other.answer();
    const Time start = clock.now();
    one.say(Bytes(1'000'000));
    EXPECT_EQ(other.heard(1'000'000).size(), 1'000'000U);
    const double took = seconds(clock.now() - start);
    EXPECT_GT(took, 0.35);
    EXPECT_LT(took, 3);
  }
}

TEST_F(RelayTest, ItsEndIsTheEndOfItsCircuits) {
  make({});
  const Caller one(*relay, 1, true);
  const Caller other(*relay, 1, false);
  const Caller waiting(*relay, 2, false);
  one.answer();
  other.answer();
  relay.reset();
  EXPECT_TRUE(one.has_ended());
  EXPECT_TRUE(other.has_ended());
  EXPECT_TRUE(waiting.has_ended());
}

}  // namespace
}  // namespace atl::net
