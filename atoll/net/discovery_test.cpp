// Beacons of this process are asked over the machine's own network: multicast needs no other.
#include "atoll/net/discovery.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/base/random.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::EndsWith;
using testing::IsEmpty;
using testing::Not;

/// Nobody else's, so that tests beside this one are not asked.
std::string any_fingerprint() { return hex(sha256(as_byte_span(random_name()))); }

TEST(NoticeTest, IsReadAsItWasWritten) {
  const std::string run = any_fingerprint();
  for (const Notice& notice : {notice_of(NoticeKind::kQuestion, 0, 5, run),
                               notice_of(NoticeKind::kAnswer, 7070, UINT64_MAX, run)}) {
    const Bytes bytes = encode(notice);
    EXPECT_EQ(bytes.size(), kNoticeBytes);
    EXPECT_EQ(decode_notice(bytes), notice);
    EXPECT_TRUE(is_about(notice, run));
    EXPECT_FALSE(is_about(notice, any_fingerprint()));
  }
}

TEST(NoticeTest, BytesAreThese) {
  const Bytes bytes = encode({.kind = NoticeKind::kAnswer, .port = 0x1b9e, .number = 1});
  const std::array<uint8_t, 16> begin = {'A', 'T', 'L', 'D', 1, 2, 0x9e, 0x1b, 1};
  EXPECT_TRUE(
      std::ranges::equal(std::span(bytes).first(begin.size()), std::as_bytes(std::span(begin))));
}

TEST(NoticeTest, WhatIsNoneIsNotTaken) {
  const Bytes good = encode(notice_of(NoticeKind::kQuestion, 0, 1, any_fingerprint()));
  for (size_t i = 0; i < 8; ++i) {  // The magic, the version, the kind, a question's port.
    Bytes bad = good;
    bad[i] ^= std::byte{0x40};
    EXPECT_FALSE(decode_notice(bad)) << i;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_notice(longer));
  EXPECT_FALSE(decode_notice(std::span(good).first(good.size() - 1)));
  EXPECT_FALSE(decode_notice({}));
  EXPECT_FALSE(decode_notice(encode({.kind = NoticeKind::kAnswer, .port = 0})));
}

TEST(NoticeTest, WhoDoesNotKnowTheRunCannotTellTwoQuestionsApart) {
  const std::string run = any_fingerprint();
  EXPECT_NE(notice_of(NoticeKind::kQuestion, 0, 1, run).run,
            notice_of(NoticeKind::kQuestion, 0, 2, run).run);
}

class BeaconTest : public testing::Test {
 protected:
  std::unique_ptr<Beacon> beacon(const std::string& fingerprint, uint16_t port,
                                 const Clock& clock) {
    auto started = Beacon::start(fingerprint, port, clock);
    EXPECT_TRUE(started) << started.error().message;
    return std::move(*started);
  }
  std::unique_ptr<Beacon> beacon(const std::string& fingerprint, uint16_t port) {
    return beacon(fingerprint, port, clock_);
  }
  std::vector<std::string> find(const std::string& fingerprint) {
    return find_on_lan(fingerprint, milliseconds(400), clock_);
  }

  const SystemClock clock_;
};

TEST_F(BeaconTest, TwoOnOneMachineAnswerEachForItsRun) {
  const std::string ours = any_fingerprint();
  const std::string theirs = any_fingerprint();
  const auto first = beacon(ours, 7070);
  const auto second = beacon(theirs, 7171);
  const auto found = find(ours);
  EXPECT_THAT(found, Not(IsEmpty()));
  EXPECT_THAT(found, Each(EndsWith(":7070")));
  EXPECT_THAT(find(theirs), Each(EndsWith(":7171")));
  EXPECT_THAT(find(theirs), Not(IsEmpty()));
}

TEST_F(BeaconTest, ForAnotherRunNobodyAnswers) {
  const auto one = beacon(any_fingerprint(), 7070);
  EXPECT_THAT(find(any_fingerprint()), IsEmpty());
}

TEST_F(BeaconTest, OneThatIsGoneDoesNotAnswer) {
  const std::string run = any_fingerprint();
  beacon(run, 7070).reset();
  EXPECT_THAT(find(run), IsEmpty());
}

/// Sends what it likes to the group, over the machine's own network.
class Asker {
 public:
  Asker() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    in_addr own{.s_addr = htonl(INADDR_LOOPBACK)};
    ::setsockopt(socket_.get(), IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own);
  }
  void send(const Bytes& bytes) const {
    sockaddr_in group{};
    group.sin_family = AF_INET;
    group.sin_port = htons(kDiscoveryPort);
    ::inet_pton(AF_INET, kDiscoveryGroup, &group.sin_addr);
    ASSERT_EQ(::sendto(socket_.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&group), sizeof group),
              std::ssize(bytes));
  }
  /// Until none came for a while.
  std::vector<Bytes> answers() const {
    std::vector<Bytes> all;
    pollfd readiness{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    while (::poll(&readiness, 1, 300) > 0) {
      Bytes bytes(512);
      const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
      bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
      all.push_back(std::move(bytes));
    }
    return all;
  }

 private:
  Descriptor socket_;
};

TEST_F(BeaconTest, GarbageIsNotAnsweredAndHarmsNothing) {
  const std::string run = any_fingerprint();
  const auto one = beacon(run, 7070);
  const Asker asker;
  const Bytes good = encode(notice_of(NoticeKind::kQuestion, 0, 1, run));
  asker.send({});
  asker.send(Bytes(good.begin(), good.end() - 1));
  asker.send(Bytes(1400, std::byte{0x41}));
  asker.send(encode(notice_of(NoticeKind::kAnswer, 7070, 1, run)));
  EXPECT_THAT(asker.answers(), IsEmpty());
  asker.send(good);
  const auto answers = asker.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0], encode(notice_of(NoticeKind::kAnswer, 7070, 1, run)));
  EXPECT_LE(answers[0].size(), good.size());
}

TEST_F(BeaconTest, AnswersSoManyInASecondAndNoMore) {
  const std::string run = any_fingerprint();
  const ManualClock still;
  const auto one = beacon(run, 7070, still);
  const Asker asker;
  for (int i = 0; i < 3 * kMaxAnswersPerSecond; ++i) {
    asker.send(encode(notice_of(NoticeKind::kQuestion, 0, static_cast<uint64_t>(i), run)));
  }
  EXPECT_EQ(std::ssize(asker.answers()), kMaxAnswersPerSecond);
}

}  // namespace
}  // namespace atl::net
