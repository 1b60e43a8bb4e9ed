#include "atoll/net/tls_stream.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/identity/wall_time.h"
#include "atoll/net/connection.h"
#include "atoll/net/stream_bio.h"

namespace atl::net {
namespace {

/// ALPN's list of one name.
std::string alpn_of(std::string_view protocol) {
  std::string list(1, static_cast<char>(protocol.size()));
  return list.append(protocol);
}

const char* protocol_of(TlsEnd end) {
  return end == TlsEnd::kReading   ? kHttpProtocol
         : end == TlsEnd::kJoining ? kJoinProtocol
                                   : kLinkProtocol;
}

/// The newest of OpenSSL's errors of this thread, as it words it.
std::string openssl_reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "" : reason;
}

/// Certificates live for a day: where one is out of its time it is rather a clock that is wrong.
std::string doubt_of_clocks() {
  return fmt::format(", or a clock is wrong: this machine's says {}",
                     identity::text_of(identity::wall_time_of(wall_time())));
}

std::string doubt_of_clocks(long verified) {
  const bool is_of_time =
      verified == X509_V_ERR_CERT_NOT_YET_VALID || verified == X509_V_ERR_CERT_HAS_EXPIRED;
  return is_of_time ? doubt_of_clocks() : std::string();
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(std::unique_ptr<ByteStream> ground, std::shared_ptr<SSL_CTX> context, TlsEnd end,
            PeerObjection objection, std::vector<NamedRun> more_runs)
      : ground_{.stream = std::move(ground), .fault = {}},
        context_(std::move(context)),
        ssl_(SSL_new(context_.get()), SSL_free),
        is_peer_a_host_(end == TlsEnd::kReading),
        takes_joins_(end == TlsEnd::kCalledToJoin),
        objection_(std::move(objection)),
        more_runs_(std::move(more_runs)) {
    BIO* const bio = new_stream_bio(ground_);
    SSL_set_bio(ssl_.get(), bio, bio);  // Takes it over.
    if (end == TlsEnd::kCalled || end == TlsEnd::kCalledToJoin) {
      SSL_set_accept_state(ssl_.get());
      SSL_set_app_data(ssl_.get(), this);
      return;
    }
    SSL_set_connect_state(ssl_.get());
    const std::string alpn = alpn_of(protocol_of(end));
    SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(alpn.data()),
                        static_cast<unsigned>(alpn.size()));
  }

  int descriptor() const override { return ground_.stream->descriptor(); }

  Moved greet() override {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result != 1) return moved(result, 0);
    if (is_peer_a_host_) return {};
    X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr) return {};  // Of a caller of the join.
    const auto facts = identity::facts_of(certificate);
    if (!facts) return refuse(facts.error().message);
    if (objection_) {
      if (const std::string why = objection_(*facts); !why.empty()) return refuse(why);
    }
    peer_ = *facts;
    return {};
  }

  Moved read(std::span<std::byte> out) override {
    ERR_clear_error();
    size_t num_read = 0;
    const int result = SSL_read_ex(ssl_.get(), out.data(), out.size(), &num_read);
    return moved(result, num_read);
  }

  Moved write(std::span<const std::span<const std::byte>> parts) override {
    // Records are filled: what is short is gathered, what is long is sealed from where it lies.
    std::span<const std::byte> next;
    size_t num_gathered = 0;
    for (const auto part : parts) {
      if (num_gathered == 0 && part.size() >= kRecordBytes) {
        next = part.first(kRecordBytes);
        break;
      }
      const size_t here = std::min(part.size(), gathered_.size() - num_gathered);
      if (here > 0) std::memcpy(gathered_.data() + num_gathered, part.data(), here);
      num_gathered += here;
      next = std::span(gathered_).first(num_gathered);
      if (num_gathered == gathered_.size()) break;
    }
    ERR_clear_error();
    size_t num_written = 0;
    const int result = SSL_write_ex(ssl_.get(), next.data(), next.size(), &num_written);
    return moved(result, num_written);
  }

  void say_goodbye() override {
    if (SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
    ERR_clear_error();
    ground_.stream->say_goodbye();
  }

  const std::optional<identity::CertificateFacts>& peer() const override { return peer_; }
  std::string run() const override { return run_; }

  bool takes_joins() const { return takes_joins_; }
  void name_run(const std::string& host) { SSL_set_tlsext_host_name(ssl_.get(), host.c_str()); }
  void choose_run() {
    const char* const name = SSL_get_servername(ssl_.get(), TLSEXT_NAMETYPE_host_name);
    if (name == nullptr) return;
    const auto found = std::ranges::find(more_runs_, std::string_view(name), &NamedRun::host);
    if (found == more_runs_.end()) return;
    run_ = found->run;
    SSL_set_SSL_CTX(ssl_.get(), found->context.get());
  }

 private:
  Moved refuse(const std::string& why) const {
    return {.outcome = Moved::Outcome::kEnded,
            .reason = fmt::format("its certificate is not taken: {}", why)};
  }

  Moved moved(int result, size_t num_bytes) const {
    if (result == 1) return {.num_bytes = num_bytes};
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return {.outcome = Moved::Outcome::kWantRead};
      case SSL_ERROR_WANT_WRITE:
        return {.outcome = Moved::Outcome::kWantWrite};
      case SSL_ERROR_ZERO_RETURN:
        return {.outcome = Moved::Outcome::kEnded};
      default:
        return {.outcome = Moved::Outcome::kEnded, .reason = why_failed()};
    }
  }

  std::string why_failed() const {
    const std::string reason = openssl_reason();
    if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
      return fmt::format("its certificate is not taken: {}{}",
                         X509_verify_cert_error_string(verified), doubt_of_clocks(verified));
    }
    if (reason.find("alert") != std::string::npos) {
      // What is not valid yet is told as a bad certificate.
      const bool may_be_clock = reason.find("expired") != std::string::npos ||
                                reason.find("bad certificate") != std::string::npos;
      return fmt::format("it does not take this side's certificate, or speaks no TLS 1.3: {}{}",
                         reason, may_be_clock ? doubt_of_clocks() : "");
    }
    if (reason.find("wrong version number") != std::string::npos) return "it speaks no TLS";
    if (!ground_.fault.empty()) return ground_.fault;
    if (!reason.empty()) return fmt::format("TLS: {}", reason);
    return "";
  }

  Ground ground_;  // Outlives the next but one.
  const std::shared_ptr<SSL_CTX> context_;
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  const bool is_peer_a_host_;  // And no member: its name was verified with its certificate.
  const bool takes_joins_;
  const PeerObjection objection_;
  const std::vector<NamedRun> more_runs_;
  std::string run_;
  std::optional<identity::CertificateFacts> peer_;
  std::vector<std::byte> gathered_ = std::vector<std::byte>(kRecordBytes);
};

}  // namespace

bool takes_joins(const SSL* ssl) {
  const auto* const stream = static_cast<const TlsStream*>(SSL_get_app_data(ssl));
  return stream != nullptr && stream->takes_joins();
}

void choose_run(SSL* ssl) {
  auto* const stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
  if (stream != nullptr) stream->choose_run();
}

std::unique_ptr<ByteStream> make_tls_stream(std::unique_ptr<ByteStream> ground,
                                            std::shared_ptr<SSL_CTX> context, TlsEnd end,
                                            PeerObjection objection,
                                            std::vector<NamedRun> more_runs) {
  return std::make_unique<TlsStream>(std::move(ground), std::move(context), end,
                                     std::move(objection), std::move(more_runs));
}

std::unique_ptr<ByteStream> make_tls_stream_to(const std::string& host,
                                               std::unique_ptr<ByteStream> ground,
                                               std::shared_ptr<SSL_CTX> context, TlsEnd end,
                                               PeerObjection objection) {
  auto stream = std::make_unique<TlsStream>(std::move(ground), std::move(context), end,
                                            std::move(objection), std::vector<NamedRun>());
  stream->name_run(host);
  return stream;
}

}  // namespace atl::net
