// Certificates, requests and authorities of any bytes, and good ones with some of their bytes
// changed.
#include <openssl/err.h>

#include <cstdint>
#include <string>

#include "atoll/base/base64.h"
#include "atoll/base/check.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/key.h"

namespace {

using atl::identity::Authority;
using atl::identity::Key;

const atl::identity::WallTime kNow = atl::identity::wall_time_of(1'800'000'000);

std::string pem_of(const std::string& der, const std::string& label) {
  std::string text = "-----BEGIN " + label + "-----\n";
  const std::string body = atl::to_base64(der);
  for (size_t at = 0; at < body.size(); at += 64) text += body.substr(at, 64) + "\n";
  return text + "-----END " + label + "-----\n";
}

std::string der_in(const std::string& pem) {
  const size_t begin = pem.find('\n') + 1;
  std::string body = pem.substr(begin, pem.rfind("-----END") - begin);
  std::erase(body, '\n');
  return atl::from_base64(body).value();
}

struct Good {
  Authority authority = Authority::create("run", kNow);
  Key key = Key::generate();
  std::string request = der_in(key.request());
  std::string certificate =
      der_in(authority
                 .sign(key.request(), {.run = authority.fingerprint(), .name = "anna"},
                       std::chrono::hours(1), kNow)
                 .value());
};

std::string changed(std::string der, const uint8_t* data, size_t size) {
  for (size_t i = 0; i + 2 < size && i < 12; i += 3) {
    der[(data[i] * 256U + data[i + 1]) % der.size()] ^= static_cast<char>(data[i + 2]);
  }
  return der;
}

void read_certificate(const Good& good, const std::string& pem) {
  (void)atl::identity::fingerprint_of(pem);
  (void)atl::identity::verified_facts(good.certificate, pem, kNow);
  const auto facts = atl::identity::facts_of(pem);
  if (facts) ATOLL_CHECK(atl::identity::peer_in(uri_of(facts->peer)));
  const auto verified = atl::identity::verified_facts(pem, good.authority.certificate_pem(), kNow);
  // Nobody but the authority makes a certificate, and whatever it did not sign has not its facts.
  if (verified) ATOLL_CHECK(verified->peer.name == "anna");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Good good;
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_certificate(good, text);
  read_certificate(good, pem_of(text, "CERTIFICATE"));
  read_certificate(good, pem_of(changed(good.certificate, data, size), "CERTIFICATE"));
  (void)atl::identity::public_key_in(text);
  (void)atl::identity::public_key_in(pem_of(text, "CERTIFICATE REQUEST"));
  (void)atl::identity::public_key_in(
      pem_of(changed(good.request, data, size), "CERTIFICATE REQUEST"));
  ATOLL_CHECK(ERR_peek_error() == 0);
  return 0;
}
