// Keys, certificates and the authority, held against OpenSSL's own verification.
#include "atoll/identity/authority.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/issue.h"
#include "atoll/identity/openssl.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::identity {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

const WallTime kNow = wall_time_of(1'800'000'000);

PeerId peer_of_run(const Authority& authority, const std::string& name) {
  return {.run = authority.fingerprint(), .role = Role::kIsland, .name = name};
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

class AuthorityTest : public testing::Test {
 protected:
  std::string certificate(const std::string& name, seconds validity = hours(1)) const {
    return authority_.sign(key_.request(), peer_of_run(authority_, name), validity, kNow).value();
  }
  Result<CertificateFacts> verified(const std::string& pem, WallTime now) const {
    return verified_facts(pem, authority_.certificate_pem(), now);
  }

  Authority authority_ = Authority::create("llama", kNow);
  Key key_ = Key::generate();
};

TEST_F(AuthorityTest, ACertificateSaysWhoItIsForAndForHowLong) {
  const auto facts = facts_of(certificate("anna"));
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->peer, peer_of_run(authority_, "anna"));
  EXPECT_EQ(facts->not_before, kNow - minutes(5));
  EXPECT_EQ(facts->not_after, kNow + hours(1));
  EXPECT_EQ(facts->serial.size(), 32U);
  EXPECT_EQ(facts->key_hash, hex(sha256(as_byte_span(key_.public_der()))));
  EXPECT_NE(facts_of(certificate("anna"))->serial, facts->serial);
  const OwnedCertificate leaf = certificate_in(certificate("anna"));
  EXPECT_EQ(peer_of(leaf.get()).value(), facts->peer);
}

TEST_F(AuthorityTest, ACertificateHoldsInItsTimeAndInNoOther) {
  const std::string pem = certificate("anna");
  EXPECT_TRUE(verified(pem, kNow));
  EXPECT_TRUE(verified(pem, kNow - minutes(5)));
  EXPECT_TRUE(verified(pem, kNow + minutes(59)));
  EXPECT_THAT(verified(pem, kNow - minutes(6)).error().message, HasSubstr("not valid yet"));
  EXPECT_THAT(verified(pem, kNow + minutes(61)).error().message, HasSubstr("expired"));
}

TEST_F(AuthorityTest, AnotherAuthorityOfTheSameNameIsAnotherRun) {
  const Authority other = Authority::create("llama", kNow);
  EXPECT_NE(other.fingerprint(), authority_.fingerprint());
  EXPECT_EQ(verified_facts(certificate("anna"), other.certificate_pem(), kNow).error().message,
            "the certificate is of another run");
  // One that signs for our run is not believed.
  const std::string forged =
      member_certificate(Key::generate(), authority_.certificate_pem(), key_.request(),
                         peer_of_run(authority_, "anna"), hours(1), kNow);
  ASSERT_TRUE(facts_of(forged));
  EXPECT_THAT(verified(forged, kNow).error().message, HasSubstr("does not hold"));
}

TEST_F(AuthorityTest, AMemberCannotSignForOthers) {
  const std::string anna = certificate("anna");
  const std::string by_anna = member_certificate(key_, anna, Key::generate().request(),
                                                 peer_of_run(authority_, "eve"), hours(1), kNow);
  EXPECT_FALSE(verified(by_anna, kNow));
  EXPECT_FALSE(verified_facts(by_anna, anna, kNow));
}

TEST_F(AuthorityTest, AnAuthorityIsNoMember) {
  EXPECT_THAT(facts_of(authority_.certificate_pem()).error().message, HasSubstr("authority's"));
  EXPECT_EQ(fingerprint_of(certificate("anna")).error().message,
            "the certificate is no authority's");
  EXPECT_EQ(fingerprint_of(authority_.certificate_pem()).value(), authority_.fingerprint());
}

TEST_F(AuthorityTest, AMemberWithTheNameOfTheRunIsNotTakenForItsAuthority) {
  EXPECT_TRUE(verified(certificate("llama"), kNow));
}

/// With OpenSSL's purposes, as a TLS server and a TLS client verify.
TEST_F(AuthorityTest, TlsTakesTheChainForServersAndClients) {
  for (const int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER}) {
    const Owned<X509_STORE, X509_STORE_free> store(X509_STORE_new());
    const OwnedCertificate authority = certificate_in(authority_.certificate_pem());
    const OwnedCertificate leaf = certificate_in(certificate("anna"));
    ASSERT_EQ(X509_STORE_add_cert(store.get(), authority.get()), 1);
    const Owned<X509_STORE_CTX, X509_STORE_CTX_free> context(X509_STORE_CTX_new());
    ASSERT_EQ(X509_STORE_CTX_init(context.get(), store.get(), leaf.get(), nullptr), 1);
    X509_VERIFY_PARAM* rules = X509_STORE_CTX_get0_param(context.get());
    X509_VERIFY_PARAM_set_time(rules, kNow.time_since_epoch().count());
    X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_X509_STRICT);
    X509_VERIFY_PARAM_set_purpose(rules, purpose);
    EXPECT_EQ(X509_verify_cert(context.get()), 1)
        << X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  }
}

TEST_F(AuthorityTest, TheProgramOpensslTakesTheChain) {
  const auto folders = folders_of_path();
  if (std::ranges::none_of(folders, [](const auto& folder) {
        return std::filesystem::exists(folder / "openssl");
      })) {
    GTEST_SKIP() << "there is no openssl here";
  }
  const TestFolder folder;
  const auto authority = folder.write("authority.pem", authority_.certificate_pem());
  const auto leaf = folder.write("leaf.pem", certificate("anna"));
  for (const char* purpose : {"sslserver", "sslclient"}) {
    const auto verify = [&](const Authority& by) {
      const auto file = folder.write("by.pem", by.certificate_pem());
      return std::system(
          fmt::format("openssl verify -x509_strict -purpose {} -attime {} -CAfile {} "
                      "{} > {} 2>&1",
                      purpose, kNow.time_since_epoch().count(), file.string(), leaf.string(),
                      (folder / "out").string())
              .c_str());
    };
    EXPECT_EQ(verify(authority_), 0) << read_file(folder / "out");
    EXPECT_NE(verify(Authority::create("llama", kNow)), 0);
  }
}

TEST_F(AuthorityTest, SignsOnlyWhatItMay) {
  const auto refusal = [&](const std::string& request, const PeerId& peer, seconds validity,
                           WallTime now = kNow) {
    const auto answer = authority_.sign(request, peer, validity, now);
    return answer ? std::string() : answer.error().message;
  };
  const PeerId anna = peer_of_run(authority_, "anna");
  const std::string request = key_.request();
  EXPECT_EQ(refusal(request, anna, kMaxValidity), "");
  EXPECT_THAT(refusal(request, anna, kMaxValidity + seconds(1)), HasSubstr("90 days"));
  EXPECT_THAT(refusal(request, anna, seconds(0)), HasSubstr("90 days"));
  EXPECT_THAT(refusal(request, peer_of_run(authority_, ".."), hours(1)), HasSubstr("'..'"));
  EXPECT_THAT(refusal(request, peer_of_run(authority_, "a,DNS:b"), hours(1)), HasSubstr("name"));
  EXPECT_THAT(refusal(request, {.run = std::string(64, '0'), .name = "anna"}, hours(1)),
              HasSubstr("own run"));
  EXPECT_THAT(
      refusal(request, {.run = anna.run, .role = static_cast<Role>(6), .name = "anna"}, hours(1)),
      HasSubstr("role"));
  EXPECT_THAT(refusal("", anna, hours(1)), HasSubstr("no request"));
  EXPECT_THAT(refusal(request, anna, hours(1), kNow + kAuthorityValidity + seconds(1)),
              HasSubstr("expired"));
}

TEST_F(AuthorityTest, ACertificateDoesNotOutliveTheAuthority) {
  const WallTime end = kNow + kAuthorityValidity;
  const auto pem =
      authority_.sign(key_.request(), peer_of_run(authority_, "anna"), hours(48), end - hours(1));
  EXPECT_EQ(facts_of(pem.value())->not_after, end);
}

TEST_F(AuthorityTest, ARequestMustBeSignedWithItsOwnKey) {
  const std::string pem = key_.request();
  EXPECT_EQ(public_key_in(pem).value(), key_.public_der());
  const OwnedRequest request(
      PEM_read_bio_X509_REQ(reader_of(pem).get(), nullptr, nullptr, nullptr));
  ASSERT_EQ(X509_REQ_set_pubkey(request.get(), Key::generate().get()), 1);
  const std::string stolen =
      written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); });
  EXPECT_EQ(public_key_in(stolen).error().message, "the request is not signed with its own key");
}

TEST_F(AuthorityTest, OtherKindsOfKeysAreRefused) {
  for (const OwnedKey& key : {OwnedKey(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", size_t{2048})),
                              OwnedKey(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")),
                              OwnedKey(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-384"))}) {
    ASSERT_NE(key, nullptr);
    const OwnedRequest request(X509_REQ_new());
    X509_REQ_set_pubkey(request.get(), key.get());
    const bool is_signed =
        X509_REQ_sign(request.get(), key.get(),
                      EVP_PKEY_is_a(key.get(), "ED25519") == 1 ? nullptr : EVP_sha256()) > 0;
    ASSERT_TRUE(is_signed);
    const std::string pem =
        written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); });
    EXPECT_EQ(public_key_in(pem).error().message, "the request is for no P-256 key");
    const std::string private_pem = written([&](BIO* bio) {
      return PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    EXPECT_THROW(Key::from_pem(private_pem, "it"), InputError);
  }
}

TEST_F(AuthorityTest, WhatIsNoCertificateIsRefusedAndLeavesNoErrorBehind) {
  ERR_clear_error();
  const std::string pem = certificate("anna");
  EXPECT_FALSE(facts_of(""));
  EXPECT_FALSE(facts_of("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"));
  EXPECT_FALSE(facts_of(pem.substr(0, pem.size() / 2)));
  EXPECT_FALSE(facts_of("x" + pem));
  EXPECT_FALSE(facts_of(pem + std::string(kMaxPemBytes, '\n')));
  EXPECT_FALSE(facts_of(static_cast<const X509*>(nullptr)));
  EXPECT_FALSE(public_key_in("-----BEGIN CERTIFICATE REQUEST-----\n"));
  EXPECT_THROW(Key::from_pem("", "it"), InputError);
  EXPECT_EQ(ERR_peek_error(), 0U);
}

/// A certificate that is good but for its alternative names.
std::string with_names(const char* names) {
  const Key key = Key::generate();
  const OwnedCertificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 17);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), 0);
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), 1000);
  X509_set_pubkey(certificate.get(), key.get());
  if (names != nullptr) {
    X509_EXTENSION* const extension =
        X509V3_EXT_nconf_nid(nullptr, nullptr, NID_subject_alt_name, names);
    X509_add_ext(certificate.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  return written([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
}

TEST(CertificateTest, ThereIsOneNameAndItIsAPeers) {
  const std::string uri = "URI:atoll://" + std::string(64, 'a') + "/island/x";
  const auto facts = facts_of(with_names(uri.c_str()));
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->serial, "11");
  EXPECT_FALSE(facts_of(with_names(nullptr)));
  EXPECT_FALSE(facts_of(with_names("DNS:example.org")));
  EXPECT_FALSE(facts_of(with_names((uri + ",DNS:example.org").c_str())));
  EXPECT_FALSE(facts_of(with_names((uri + "," + uri).c_str())));
  EXPECT_FALSE(facts_of(with_names("URI:https://example.org")));
  EXPECT_FALSE(facts_of(with_names((uri + "/" + std::string(300, 'x')).c_str())));
}

TEST_F(AuthorityTest, IsTheSameWhenItIsLoaded) {
  const TestFolder folder;
  const auto home = folder / "authority";
  authority_.save(home);
  authority_.revoke(Revocation::Kind::kPeer, "eve", kNow);
  EXPECT_EQ(mode_of(home), 0700U);
  EXPECT_EQ(mode_of(home / "authority-key.pem"), 0600U);
  const Authority loaded = Authority::load(home);
  EXPECT_EQ(loaded.fingerprint(), authority_.fingerprint());
  EXPECT_EQ(loaded.run_name(), "llama");
  EXPECT_EQ(loaded.revocations(), authority_.revocations());
  const auto pem = loaded.sign(key_.request(), peer_of_run(loaded, "anna"), hours(1), kNow);
  EXPECT_TRUE(verified(pem.value(), kNow));
}

TEST_F(AuthorityTest, NoAuthorityIsWrittenOverAnother) {
  const TestFolder folder;
  authority_.save(folder / "authority");
  Authority other = Authority::create("llama", kNow);
  EXPECT_THAT(message_of([&] { other.save(folder / "authority"); }),
              HasSubstr("which nothing may replace"));
  EXPECT_EQ(Authority::load(folder / "authority").fingerprint(), authority_.fingerprint());
}

TEST_F(AuthorityTest, AKeyThatOthersMayReadIsRefused) {
  const TestFolder folder;
  const auto home = folder / "authority";
  authority_.save(home);
  const auto file = home / "authority-key.pem";
  for (const mode_t mode : {0640U, 0604U, 0620U}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    EXPECT_THAT(message_of([&] { Authority::load(home); }),
                HasSubstr("chmod 600 '" + file.string() + "'"));
  }
}

TEST_F(AuthorityTest, AFolderThatOthersMayWriteIntoIsRefused) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "open");
  ASSERT_EQ(::chmod((folder / "open").c_str(), 0777), 0);
  EXPECT_THAT(message_of([&] { authority_.save(folder / "open"); }), HasSubstr("chmod 700"));
}

TEST_F(AuthorityTest, PartsOfTwoAuthoritiesAreNone) {
  const TestFolder folder;
  authority_.save(folder / "a");
  Authority::create("llama", kNow).save(folder / "b");
  std::filesystem::copy_file(folder / "b" / "authority.pem", folder / "a" / "authority.pem",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(message_of([&] { Authority::load(folder / "a"); }),
              HasSubstr("the key is not the certificate's"));
}

TEST_F(AuthorityTest, TwoProcessesRevokeInOneFolder) {
  const TestFolder folder;
  authority_.save(folder / "authority");
  Authority other = Authority::load(folder / "authority");
  authority_.revoke(Revocation::Kind::kPeer, "eve", kNow);
  other.revoke(Revocation::Kind::kSerial, "0a0b", kNow);
  EXPECT_EQ(other.revocations().entries.size(), 2U);
  EXPECT_GT(other.revocations().number, authority_.revocations().number);
  authority_.reload_revocations();
  EXPECT_EQ(authority_.revocations(), other.revocations());
}

TEST_F(AuthorityTest, ABackupIsAllThatIsNeeded) {
  authority_.revoke(Revocation::Kind::kPeer, "eve", kNow);
  const std::string backup = authority_.encrypted_backup("correct horse");
  EXPECT_EQ(backup.find("PRIVATE KEY"), std::string::npos);
  EXPECT_EQ(backup.find("eve"), std::string::npos);
  const Authority restored = Authority::restore(backup, "correct horse");
  EXPECT_EQ(restored.fingerprint(), authority_.fingerprint());
  EXPECT_EQ(restored.revocations(), authority_.revocations());
  EXPECT_TRUE(verified(
      restored.sign(key_.request(), peer_of_run(restored, "anna"), hours(1), kNow).value(), kNow));
}

TEST_F(AuthorityTest, AWrongPassphraseAndADamagedBackupAreNotToldApart) {
  const std::string backup = authority_.encrypted_backup("correct horse");
  const auto refusal = [](const std::string& bytes, const char* passphrase) {
    return message_of([&] { Authority::restore(bytes, passphrase); });
  };
  const std::string sentence = "wrong passphrase or damaged file";
  EXPECT_EQ(refusal(backup, "correct hors"), sentence);
  for (const size_t at : {size_t{10}, backup.size() / 2, backup.size() - 1}) {
    std::string damaged = backup;
    damaged[at] ^= 1;
    EXPECT_EQ(refusal(damaged, "correct horse"), sentence) << at;
  }
  EXPECT_EQ(refusal(backup.substr(0, backup.size() - 1), "correct horse"), sentence);
  EXPECT_EQ(refusal(backup.substr(0, 20), "correct horse"), sentence);
  EXPECT_EQ(refusal("something else", "correct horse"), "this is no backup of an authority");
  EXPECT_THROW(authority_.encrypted_backup("short"), UsageError);
}

TEST_F(AuthorityTest, ARunsNameIsAName) {
  EXPECT_THROW(Authority::create("", kNow), UsageError);
  EXPECT_THROW(Authority::create("a/b", kNow), UsageError);
  EXPECT_EQ(authority_.run_name(), "llama");
}

}  // namespace
}  // namespace atl::identity
