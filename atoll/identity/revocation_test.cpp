#include "atoll/identity/revocation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/issue.h"

namespace atl::identity {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using Kind = Revocation::Kind;

const WallTime kNow = wall_time_of(1'800'000'000);

CertificateFacts facts(const std::string& name, const std::string& serial, WallTime issued) {
  return {.peer = {.run = std::string(64, 'a'), .name = name},
          .serial = serial,
          .not_before = issued - kBackdated,
          .not_after = issued + seconds(1000),
          .key_hash = {}};
}

RevocationList list_of_two() {
  RevocationList list{.run = std::string(64, 'a'), .number = 7, .entries = {}};
  list.add({.kind = Kind::kPeer, .subject = "eve", .when = kNow});
  list.add({.kind = Kind::kSerial, .subject = "0aff", .when = kNow});
  return list;
}

TEST(RevocationTest, APeerLosesWhatItHadAndMayComeBack) {
  const RevocationList list = list_of_two();
  EXPECT_TRUE(list.is_revoked(facts("eve", "01", kNow - seconds(500))));
  EXPECT_TRUE(list.is_revoked(facts("eve", "01", kNow)));
  EXPECT_FALSE(list.is_revoked(facts("eve", "01", kNow + seconds(1))));
  EXPECT_FALSE(list.is_revoked(facts("anna", "01", kNow)));
}

TEST(RevocationTest, ASerialNumberIsOneCertificate) {
  const RevocationList list = list_of_two();
  EXPECT_TRUE(list.is_revoked(facts("anna", "0aff", kNow)));
  EXPECT_TRUE(list.is_revoked(facts("anna", "0aff", kNow + seconds(1))));
  EXPECT_FALSE(list.is_revoked(facts("anna", "0afe", kNow)));
}

TEST(RevocationTest, IsReadAsItIsWritten) {
  const RevocationList list = list_of_two();
  EXPECT_EQ(decode_revocation_list(encode(list)).value(), list);
}

TEST(RevocationTest, OfOneSubjectTheLaterTimeStays) {
  RevocationList list = list_of_two();
  list.add({.kind = Kind::kPeer, .subject = "eve", .when = kNow + seconds(9)});
  list.add({.kind = Kind::kPeer, .subject = "eve", .when = kNow - seconds(9)});
  ASSERT_EQ(list.entries.size(), 2U);
  EXPECT_TRUE(list.is_revoked(facts("eve", "01", kNow + seconds(9))));
  list.forget_before(kNow + seconds(1));
  EXPECT_EQ(list.entries.size(), 1U);
}

TEST(RevocationTest, IsBoundedAndTakesSubjectsOnly) {
  RevocationList list = list_of_two();
  for (const char* bad : {"", "..", "a b", "a\n"}) {
    EXPECT_THROW(list.add({.kind = Kind::kPeer, .subject = bad, .when = kNow}), InputError);
  }
  for (const char* bad : {"", "0", "0AFF", "xx"}) {
    EXPECT_THROW(list.add({.kind = Kind::kSerial, .subject = bad, .when = kNow}), InputError);
  }
  while (list.entries.size() < kMaxRevocations) {
    list.add({.subject = fmt::format("p{}", list.entries.size()), .when = kNow});
  }
  EXPECT_THROW(list.add({.subject = "more", .when = kNow}), InputError);
  EXPECT_TRUE(decode_revocation_list(encode(list)));
}

TEST(RevocationTest, WhatIsCutChangedOrOutOfOrderIsRefused) {
  const RevocationList list = list_of_two();
  const Bytes good = encode(list);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decode_revocation_list(std::span(good).first(size))) << size;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_revocation_list(longer));
  RevocationList twisted = list;
  std::swap(twisted.entries[0], twisted.entries[1]);
  EXPECT_FALSE(decode_revocation_list(encode(twisted)));
  twisted.entries[1] = twisted.entries[0];
  EXPECT_FALSE(decode_revocation_list(encode(twisted)));
  twisted = list;
  twisted.run = "x";
  EXPECT_FALSE(decode_revocation_list(encode(twisted)));
  twisted = list;
  twisted.entries[0].when = wall_time_of(-1);
  EXPECT_FALSE(decode_revocation_list(encode(twisted)));
}

TEST(RevocationTest, OnlyTheRunsAuthorityIsBelieved) {
  Authority authority = Authority::create("llama", kNow);
  const Authority other = Authority::create("llama", kNow);
  authority.revoke(Kind::kPeer, "eve", kNow);
  const Bytes good = authority.signed_revocations();
  EXPECT_EQ(verify(good, authority.certificate_pem()).value(), authority.revocations());
  EXPECT_THAT(verify(good, other.certificate_pem()).error().message, HasSubstr("not signed"));
  EXPECT_FALSE(verify(good, "no authority"));
  for (size_t i = 0; i < good.size(); i += 3) {
    Bytes damaged = good;
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(verify(damaged, authority.certificate_pem())) << i;
  }
  for (size_t size = 0; size < good.size(); size += 5) {
    EXPECT_FALSE(verify(std::span(good).first(size), authority.certificate_pem()));
  }
  // Signed by the authority, but it is another run's list.
  const Key key = Key::generate();
  RevocationList stolen = authority.revocations();
  EXPECT_THAT(verify(sign(stolen, key), authority_certificate(key, "llama", kNow)).error().message,
              HasSubstr("another run"));
}

TEST(RevocationTest, ASignatureForOnePurposeIsOfNoUseForAnother) {
  const Key key = Key::generate();
  const std::string pem = authority_certificate(key, "llama", kNow);
  const std::string signature = key.sign("one", "message");
  EXPECT_TRUE(is_signed_by(pem, "one", "message", signature));
  EXPECT_FALSE(is_signed_by(pem, "two", "message", signature));
  EXPECT_FALSE(is_signed_by(pem, "one", "massage", signature));
  EXPECT_FALSE(is_signed_by(pem, "one", "message", ""));
}

}  // namespace
}  // namespace atl::identity
