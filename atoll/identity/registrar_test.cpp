#include "atoll/identity/registrar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "atoll/identity/invite.h"
#include "atoll/identity/member_files.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::identity {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

const WallTime kNow = wall_time_of(1'800'000'000);

class RegistrarTest : public testing::Test {
 protected:
  std::string invite(InviteTerms terms = {}) {
    terms.expiry = kNow + hours(72);
    return registrar_.invite(terms, kNow);
  }
  Result<RegistrationReply> ask(const RegistrationRequest& request, WallTime now = kNow,
                                const Caller& caller = {.address = "10.0.0.1"}) {
    return decode_reply(registrar_.answer(encode(request), caller, now));
  }
  Result<RegistrationReply> ask(const std::string& secret, const std::string& name, const Key& key,
                                WallTime now = kNow) {
    return ask({secret, name, key.request()}, now);
  }
  Result<RegistrationReply> renew(const std::string& certificate, const Key& key, WallTime now) {
    return ask({.certificate_request = key.request()}, now,
               {.address = "10.0.0.1", .certificate = facts_of(certificate).value()});
  }
  CertificateFacts checked(const RegistrationReply& reply, const Key& key, WallTime now) const {
    const auto facts = check_reply(reply, authority_.fingerprint(), key, now);
    EXPECT_TRUE(facts) << facts.error().message;
    return facts.value_or(CertificateFacts{});
  }
  std::vector<std::string> kinds() const {
    std::vector<std::string> out;
    for (const Event& event : events_) out.push_back(event.kind);
    return out;
  }

  TestFolder folder_;
  Authority authority_ = Authority::create("llama", kNow);
  InviteBook book_{folder_ / "invites.json"};
  std::vector<Event> events_;
  Registrar registrar_{
      authority_, book_, {}, [this](const Event& event) { events_.push_back(event); }};
  Key key_ = Key::generate();
};

TEST_F(RegistrarTest, WhoIsInvitedGetsACertificate) {
  const std::string secret = invite({.role = Role::kReader});
  const auto reply = ask(secret, "anna", key_);
  ASSERT_TRUE(reply) << reply.error().message;
  const CertificateFacts facts = checked(*reply, key_, kNow);
  EXPECT_EQ(facts.peer, (PeerId{authority_.fingerprint(), Role::kReader, "anna"}));
  EXPECT_EQ(facts.not_after, kNow + hours(24));
  EXPECT_THAT(kinds(), ElementsAre("member_invited", "member_registered"));
  for (const Event& event : events_) {
    EXPECT_EQ(to_json(event, 0).find(secret), std::string::npos);
  }
}

TEST_F(RegistrarTest, ALostAnswerIsGivenAgain) {
  const std::string secret = invite();
  ASSERT_TRUE(ask(secret, "anna", key_));
  const auto again = ask(secret, "anna", key_, kNow + minutes(1));
  ASSERT_TRUE(again) << again.error().message;
  checked(*again, key_, kNow + minutes(1));
  EXPECT_EQ(ask(secret, "anna", Key::generate()).error().message, kNoSuchInvite);
}

TEST_F(RegistrarTest, AReplyOfSomebodyElseIsFound) {
  const auto reply = ask(invite(), "anna", key_).value();
  EXPECT_THAT(check_reply(reply, std::string(64, 'a'), key_, kNow).error().message,
              HasSubstr("another run"));
  EXPECT_THAT(check_reply(reply, authority_.fingerprint(), Key::generate(), kNow).error().message,
              HasSubstr("another key"));
  RegistrationReply swapped = reply;
  swapped.certificate_pem = reply.authority_pem;
  EXPECT_FALSE(check_reply(swapped, authority_.fingerprint(), key_, kNow));
  EXPECT_FALSE(check_reply({}, authority_.fingerprint(), key_, kNow));
}

TEST_F(RegistrarTest, RefusalsSayTheirReasonToTheLogAlone) {
  EXPECT_EQ(ask(new_secret(), "anna", key_).error().message, kNoSuchInvite);
  ASSERT_THAT(kinds(), ElementsAre("registration_refused"));
  EXPECT_THAT(events_[0].sentence, HasSubstr("unknown invite"));
}

TEST_F(RegistrarTest, WhatStrangersSayIsMadePrintable) {
  const std::string secret = invite();
  EXPECT_FALSE(ask(secret, "a\nb\x1b[31m", key_));
  EXPECT_FALSE(ask({secret, "x", "no request"}, kNow, {.address = "\n\x01"}));
  EXPECT_THAT(registrar_.answer("{\"request\": \"\n\"}", {.address = "a\n"}, kNow),
              HasSubstr("refusal"));
  ASSERT_EQ(events_.size(), 4U);
  for (const Event& event : events_) {
    EXPECT_THAT(event.sentence, testing::Each(testing::AllOf(testing::Ge(' '), testing::Le('~'))));
  }
}

TEST_F(RegistrarTest, GuessesAreHeldBackAndNotAllTold) {
  for (int i = 0; i < 50; ++i) ask(new_secret(), "anna", key_);
  EXPECT_THAT(kinds(), testing::SizeIs(6));
  EXPECT_EQ(kinds().back(), "guesses_held_back");
  // Not even a good invite is heard until it is time; another address is not concerned.
  const std::string secret = invite();
  EXPECT_THAT(ask(secret, "anna", key_).error().message, HasSubstr("too many attempts"));
  EXPECT_TRUE(ask({secret, "anna", key_.request()}, kNow, {.address = "10.0.0.2"}));
  EXPECT_TRUE(ask(secret, "anna", key_, kNow + seconds(10)));
}

TEST_F(RegistrarTest, GarbageIsAGuessToo) {
  for (const std::string& bytes :
       {std::string(), std::string("{}"), std::string("[[["), std::string("{\"request\": 1}"),
        std::string(9000, 'x'), std::string("{\"request\":\"x\"}")}) {
    EXPECT_FALSE(decode_reply(registrar_.answer(bytes, {.address = "10.0.0.1"}, kNow)));
  }
  EXPECT_EQ(kinds().back(), "guesses_held_back");
}

TEST_F(RegistrarTest, AMemberRenewsWithAnyKey) {
  const auto first = ask(invite(), "anna", key_).value();
  const Key next = Key::generate();
  const WallTime later = kNow + hours(13);
  const auto second = renew(first.certificate_pem, next, later);
  ASSERT_TRUE(second) << second.error().message;
  const CertificateFacts facts = checked(*second, next, later);
  EXPECT_EQ(facts.peer.name, "anna");
  EXPECT_EQ(facts.not_after, later + hours(24));
  EXPECT_EQ(kinds().back(), "certificate_renewed");
  EXPECT_EQ(book_.holders()[0].second.key_hash, facts.key_hash);
}

TEST_F(RegistrarTest, NobodyRenewsWithoutACertificateThatHolds) {
  const auto first = ask(invite(), "anna", key_).value();
  const auto message = [&](const Result<RegistrationReply>& reply) {
    return reply ? std::string() : reply.error().message;
  };
  EXPECT_THAT(message(ask({.certificate_request = key_.request()})), HasSubstr("neither"));
  EXPECT_THAT(message(renew(first.certificate_pem, key_, kNow + hours(25))), HasSubstr("expired"));
  CertificateFacts foreign = facts_of(first.certificate_pem).value();
  foreign.peer.run = std::string(64, '0');
  EXPECT_THAT(message(ask({.certificate_request = key_.request()}, kNow,
                          {.address = "x", .certificate = foreign})),
              HasSubstr("another run"));
  EXPECT_THAT(
      message(ask({.name = "bert", .certificate_request = key_.request()}, kNow,
                  {.address = "x", .certificate = facts_of(first.certificate_pem).value()})),
      HasSubstr("the name that it has"));
}

TEST_F(RegistrarTest, WhoIsRevokedIsOutUntilInvitedAgain) {
  const std::string secret = invite({.uses = 5});
  const auto first = ask(secret, "eve", key_).value();
  registrar_.revoke(Revocation::Kind::kPeer, "eve", kNow + minutes(1));
  const WallTime later = kNow + minutes(2);
  EXPECT_TRUE(authority_.revocations().is_revoked(facts_of(first.certificate_pem).value()));
  EXPECT_THAT(renew(first.certificate_pem, key_, later).error().message, HasSubstr("revoked"));
  EXPECT_EQ(ask(secret, "eve", key_, later).error().message, kNoSuchInvite);
  EXPECT_EQ(ask(secret, "eve2", Key::generate(), later).error().message, kNoSuchInvite);
  const auto back = ask(invite(), "eve", Key::generate(), later);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_FALSE(authority_.revocations().is_revoked(facts_of(back->certificate_pem).value()));
}

TEST_F(RegistrarTest, ADiskThatFailsIsNoStrangersBusiness) {
  const std::string secret = invite();
  std::filesystem::permissions(folder_ / "invites.json", std::filesystem::perms(0644));
  EXPECT_EQ(ask(secret, "anna", key_).error().message,
            "no certificate can be given at the moment: try again later");
  EXPECT_EQ(kinds().back(), "registrar_failed");
}

class MemberFilesTest : public RegistrarTest {
 protected:
  void SetUp() override {
    const Key key = member_key(home_);
    save_reply(home_, ask(invite(), "anna", key).value());
  }
  std::string complaint(WallTime now) const {
    return message_of([&] { load_credentials(home_, now); });
  }

  std::filesystem::path home_ = folder_ / "run" / "identity";
};

TEST_F(MemberFilesTest, CredentialsAreLoadedAsTheyWereSaved) {
  const Credentials credentials = load_credentials(home_, kNow);
  EXPECT_EQ(credentials.authority_pem, authority_.certificate_pem());
  EXPECT_EQ(facts_of(credentials.certificate_pem)->peer.name, "anna");
  EXPECT_EQ(credentials.key_pem, member_key(home_).pem());
}

TEST_F(MemberFilesTest, AWrongClockIsNamedWithBothTimes) {
  EXPECT_THAT(complaint(kNow - hours(1)),
              HasSubstr("this machine's clock says 2027-01-15 07:00:00 UTC, the certificate is "
                        "valid from 2027-01-15 07:55:00 UTC: if the clock is wrong set it"));
  EXPECT_THAT(complaint(kNow + hours(25)),
              HasSubstr("this machine's clock says 2027-01-16 09:00:00 UTC, the certificate was "
                        "valid until 2027-01-16 08:00:00 UTC"));
}

TEST_F(MemberFilesTest, WhatDoesNotBelongTogetherIsRefused) {
  Credentials credentials = load_credentials(home_, kNow);
  ASSERT_TRUE(check(credentials, kNow));
  Credentials other_key = credentials;
  other_key.key_pem = Key::generate().pem();
  EXPECT_THAT(check(other_key, kNow).error().message, HasSubstr("another key"));
  Credentials other_run = credentials;
  other_run.authority_pem = Authority::create("llama", kNow).certificate_pem();
  EXPECT_THAT(check(other_run, kNow).error().message, HasSubstr("another run"));
  Credentials no_key = credentials;
  no_key.key_pem = "x";
  EXPECT_THAT(check(no_key, kNow).error().message, HasSubstr("no unencrypted P-256 key"));
}

TEST_F(MemberFilesTest, AKeyThatOthersMayReadIsRefused) {
  std::filesystem::permissions(home_ / "key.pem", std::filesystem::perms(0644));
  EXPECT_THAT(complaint(kNow), HasSubstr("chmod 600"));
  EXPECT_THAT(message_of([&] { member_key(home_); }), HasSubstr("chmod 600"));
}

TEST_F(MemberFilesTest, AnotherRunsAuthorityReplacesNone) {
  Authority other = Authority::create("llama", kNow);
  EXPECT_THAT(message_of([&] {
                save_reply(home_,
                           {.certificate_pem = "x", .authority_pem = other.certificate_pem()});
              }),
              HasSubstr("another run"));
  EXPECT_EQ(complaint(kNow), "");
}

TEST_F(MemberFilesTest, RenewalIsDueAtHalfOfALife) {
  const auto facts = facts_of(load_credentials(home_, kNow).certificate_pem).value();
  EXPECT_FALSE(renewal_due(facts, kNow + hours(12) - seconds(1)));
  EXPECT_TRUE(renewal_due(facts, kNow + hours(12)));
}

}  // namespace
}  // namespace atl::identity
