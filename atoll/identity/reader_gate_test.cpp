// Who may read, by token or certificate; and the certificate of the server that they ask.
#include "atoll/identity/reader_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/base64.h"
#include "atoll/base/file.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/invite.h"
#include "atoll/identity/issue.h"
#include "atoll/identity/openssl.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::identity {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;
using Answer = ReaderGate::Answer;

const WallTime kNow = wall_time_of(1'800'000'000);

class ReaderGateTest : public testing::Test {
 protected:
  std::string token() {
    return book_.add(
        {.role = Role::kReader, .uses = 0, .expiry = kNow + hours(1), .is_token = true}, kNow);
  }
  Answer answer(const std::string& authorization, WallTime now = kNow,
                const std::string& address = "192.0.2.1") {
    return gate_.answer({.address = address}, authorization, now);
  }
  Answer answer_to(Role role, const std::string& authorization = "") {
    return gate_.answer({.address = "192.0.2.1", .certificate = facts(role)}, authorization, kNow);
  }
  static CertificateFacts facts(Role role) {
    return {.peer = {.run = std::string(64, 'a'), .role = role, .name = "reef"}};
  }

  TestFolder folder_;
  std::filesystem::path path_ = folder_ / "invites.json";
  InviteBook book_{path_};
  std::string objection_;
  ReaderGate gate_{path_, [this](const CertificateFacts& /*facts*/) { return objection_; }};
};

TEST_F(ReaderGateTest, ATokenIsGoodAsOftenAsOneLikesUntilItEnds) {
  const std::string secret = token();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(answer("Bearer " + secret), Answer::kMayRead);
  EXPECT_EQ(answer("bearer  " + secret), Answer::kMayRead);
  EXPECT_EQ(answer("Basic " + to_base64("anybody:" + secret)), Answer::kMayRead);
  EXPECT_EQ(answer("Bearer " + secret, kNow + seconds(3599)), Answer::kMayRead);
  EXPECT_EQ(answer("Bearer " + secret, kNow + hours(1)), Answer::kUnknown);
  EXPECT_TRUE(book_.withdraw(invite_id(secret)));
  EXPECT_EQ(answer("Bearer " + secret, kNow + hours(2)), Answer::kUnknown);
  EXPECT_THAT(read_file(path_), testing::Not(HasSubstr(secret)));
}

TEST_F(ReaderGateTest, WhatIsNoTokenIsRefused) {
  const std::string secret = token();
  const std::string invite = book_.add({.role = Role::kReader, .expiry = kNow + hours(1)}, kNow);
  int address = 0;  // Each guess from elsewhere, so that none is held back.
  for (const std::string& value :
       {std::string("Bearer"), std::string("Bearer "), secret, "Bearer " + new_secret(),
        "Bearer " + invite, "Bearer " + invite_id(secret), "Bearer " + secret + "x",
        "Bearer " + secret + " ", "Digest " + secret, "Basic " + secret,
        "Basic " + to_base64(secret), "Basic " + to_base64(secret + ":"),
        "Bearer " + std::string(10'000, 'a'), std::string("Bearer \0\n", 9)}) {
    EXPECT_EQ(answer(value, kNow, "198.51.100." + std::to_string(address++)), Answer::kUnknown)
        << value;
  }
}

TEST_F(ReaderGateTest, WhoGuessesWaitsAndOthersDoNot) {
  const std::string secret = token();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(answer("Bearer " + new_secret()), Answer::kUnknown);
  EXPECT_EQ(answer("Bearer " + new_secret()), Answer::kHeldBack);
  EXPECT_EQ(answer("Bearer " + secret), Answer::kHeldBack);
  EXPECT_EQ(answer(""), Answer::kUnknown);  // As a browser asks first.
  EXPECT_EQ(answer("Bearer " + secret, kNow, "192.0.2.2"), Answer::kMayRead);
  EXPECT_EQ(answer_to(Role::kReader), Answer::kMayRead);
  EXPECT_EQ(answer("Bearer " + secret, kNow + seconds(10)), Answer::kMayRead);
}

TEST_F(ReaderGateTest, RefusalsAreToldOnceAMinute) {
  EXPECT_FALSE(gate_.news(kNow));
  answer("");
  EXPECT_FALSE(gate_.news(kNow));
  answer("Bearer a\nb", kNow, "a\nb");
  const auto news = gate_.news(kNow);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->requests, 1);
  EXPECT_THAT(news->address, testing::Not(HasSubstr("\n")));
  answer("Bearer x");
  EXPECT_FALSE(gate_.news(kNow + seconds(59)));
  EXPECT_EQ(gate_.news(kNow + seconds(60))->requests, 2);
  EXPECT_FALSE(gate_.news(kNow + hours(1)));
}

TEST_F(ReaderGateTest, MembersReadByTheirCertificates) {
  for (const Role role :
       {Role::kCoordinator, Role::kIsland, Role::kServer, Role::kGateway, Role::kReader}) {
    EXPECT_EQ(answer_to(role), Answer::kMayRead);
  }
  EXPECT_EQ(answer_to(Role::kRelay), Answer::kUnknown);
  EXPECT_EQ(answer_to(Role::kRelay, "Bearer " + token()), Answer::kMayRead);
  objection_ = "that member was revoked";
  EXPECT_EQ(answer_to(Role::kReader), Answer::kUnknown);
}

TEST_F(ReaderGateTest, NobodyBecomesAMemberByAToken) {
  const auto grant = book_.redeem(token(), "anna", "k1", kNow);
  ASSERT_FALSE(grant);
  EXPECT_EQ(grant.error().to_stranger, kNoSuchInvite);
  EXPECT_THAT(grant.error().to_log, HasSubstr("a reader's token"));
  EXPECT_TRUE(book_.list().front().terms.is_token);
  const WallTime end = kNow + hours(1);
  for (const InviteTerms& terms :
       {InviteTerms{.role = Role::kIsland, .uses = 0, .expiry = end, .is_token = true},
        InviteTerms{.role = Role::kReader, .uses = 1, .expiry = end, .is_token = true},
        InviteTerms{.role = Role::kReader, .uses = 0, .expiry = end, .name = "a", .is_token = true},
        InviteTerms{.role = Role::kReader, .uses = 0, .expiry = end}}) {
    EXPECT_THROW(book_.add(terms, kNow), InputError);
  }
}

class WebCertificateTest : public testing::Test {
 protected:
  std::string pem_for(const std::vector<std::string>& hosts) const {
    return authority_.sign_web(server_, hosts, hours(1), kNow).value();
  }

  Authority authority_ = Authority::create("ours", kNow);
  Key server_ = Key::generate();
};

TEST_F(WebCertificateTest, ItIsForItsHostsAndForNobodyElse) {
  const OwnedCertificate leaf =
      certificate_in(pem_for({"ours.example.org", "192.0.2.7", "2001:db8::7"}));
  EXPECT_EQ(X509_check_host(leaf.get(), "ours.example.org", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(leaf.get(), "theirs.example.org", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_host(leaf.get(), "for readers", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "192.0.2.7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "2001:db8::7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "192.0.2.8", 0), 0);
  EXPECT_EQ(X509_check_purpose(leaf.get(), X509_PURPOSE_SSL_SERVER, 0), 1);
  EXPECT_EQ(X509_check_purpose(leaf.get(), X509_PURPOSE_SSL_CLIENT, 0), 0);
  EXPECT_EQ(X509_check_ca(leaf.get()), 0);
}

TEST_F(WebCertificateTest, ItIsNoMembers) {
  for (const auto& hosts : {std::vector<std::string>{"ours.example.org"}, {"192.0.2.7", "a"}}) {
    const std::string pem = pem_for(hosts);
    EXPECT_FALSE(facts_of(pem));
    EXPECT_FALSE(peer_of(certificate_in(pem).get()));
    EXPECT_FALSE(verified_facts(pem, authority_.certificate_pem(), kNow));
  }
}

/// A member chooses its name, and some clients look for hosts in the common name too.
TEST_F(WebCertificateTest, AMemberIsNotTakenForAHost) {
  const auto member = authority_.sign(server_.request(),
                                      {authority_.fingerprint(), Role::kIsland, "ours.example.org"},
                                      hours(1), kNow);
  const OwnedCertificate leaf = certificate_in(member.value());
  EXPECT_EQ(X509_check_host(leaf.get(), "ours.example.org", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_NAME_get_index_by_NID(X509_get_subject_name(leaf.get()), NID_commonName, -1), -1);
}

TEST_F(WebCertificateTest, WhatIsNoHostIsRefused) {
  for (const char* host : {"", ".", "a..b", "a,DNS:b", "*", "*.example.org", "a b", "a/b", "[::1]",
                           "URI:atoll", "::1%eth0", "a\nb"}) {
    EXPECT_FALSE(is_web_host(host)) << host;
    EXPECT_FALSE(authority_.sign_web(server_, {"a", host}, hours(1), kNow)) << host;
  }
  EXPECT_FALSE(is_web_host(std::string(254, 'a')));
  EXPECT_FALSE(authority_.sign_web(server_, {}, hours(1), kNow));
  EXPECT_FALSE(authority_.sign_web(server_, {"a"}, hours(24 * 91), kNow));
  EXPECT_FALSE(authority_.sign_web(server_, {"a"}, hours(1), kNow + hours(24 * 3651)));
}

}  // namespace
}  // namespace atl::identity
