#include "atoll/identity/reader_gate.h"

#include <strings.h>

#include <algorithm>

#include "atoll/base/base64.h"
#include "atoll/base/name.h"
#include "atoll/identity/invite.h"

namespace atl::identity {
namespace {

constexpr std::chrono::seconds kBetweenNews{60};
/// Of the header's value: a token, a user's name, and what base64 adds. Longer ones are not read.
constexpr size_t kMaxAuthorizationBytes = 512;

/// What follows the scheme, whose name has no case; nothing where it is another scheme.
std::optional<std::string_view> after_scheme(std::string_view value, std::string_view scheme) {
  if (value.size() <= scheme.size() || value[scheme.size()] != ' ' ||
      ::strncasecmp(value.data(), scheme.data(), scheme.size()) != 0) {
    return std::nullopt;
  }
  value.remove_prefix(scheme.size());
  return value.substr(std::min(value.find_first_not_of(' '), value.size()));
}

/// A relay passes on what it cannot read, and is not asked to.
bool may_read(Role role) {
  switch (role) {
    case Role::kCoordinator:
    case Role::kIsland:
    case Role::kServer:
    case Role::kGateway:
    case Role::kReader:
      return true;
    case Role::kRelay:
      return false;
  }
  return false;
}

}  // namespace

Secret token_in(std::string_view authorization) {
  if (authorization.size() > kMaxAuthorizationBytes) return Secret("");
  if (const auto token = after_scheme(authorization, "Bearer")) return Secret(std::string(*token));
  const auto encoded = after_scheme(authorization, "Basic");
  auto decoded = encoded ? from_base64(*encoded) : std::nullopt;
  if (!decoded) return Secret("");
  const Secret pair(*std::move(decoded));
  const size_t colon = pair.text().find(':');
  return Secret(colon == std::string::npos ? "" : pair.text().substr(colon + 1));
}

bool ReaderGate::is_member(const CertificateFacts& facts) const {
  return may_read(facts.peer.role) && objection_(facts).empty();
}

void ReaderGate::count_refusal(const Caller& caller) {
  refused_.address = printable(caller.address);
  ++refused_.requests;
}

ReaderGate::Answer ReaderGate::answer(const Caller& caller, std::string_view authorization,
                                      WallTime now) {
  if (caller.certificate && is_member(*caller.certificate)) return Answer::kMayRead;
  if (authorization.empty()) return Answer::kUnknown;
  // One at a time, so that nobody guesses more often by guessing at once.
  const MutexLock lock(mutex_);
  // Before anything is read: a guess must cost as little as can be.
  if (!guesses_.allows(caller.address, now)) {
    count_refusal(caller);
    return Answer::kHeldBack;
  }
  const Secret token = token_in(authorization);
  if (book_.is_reader_token(token.text(), now)) return Answer::kMayRead;
  guesses_.count(caller.address, now);
  count_refusal(caller);
  return Answer::kUnknown;
}

std::optional<ReadersRefused> ReaderGate::news(WallTime now) {
  const MutexLock lock(mutex_);
  const bool is_soon = now >= told_ && now < told_ + kBetweenNews;
  if (refused_.requests == num_told_ || is_soon) return std::nullopt;
  num_told_ = refused_.requests;
  told_ = now;
  return refused_;
}

}  // namespace atl::identity
