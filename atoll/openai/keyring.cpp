#include "atoll/openai/keyring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/number.h"
#include "atoll/text/python_text.h"

namespace atl::openai {
namespace {

constexpr size_t kMinSecretBytes = 16;

std::string digest_of(std::string_view secret) {
  return hex(sha256(std::as_bytes(std::span(secret))));
}

}  // namespace

Keyring::Keyring(const std::vector<ApiKey>& keys) {
  for (const ApiKey& key : keys) {
    if (key.secret.size() < kMinSecretBytes) {
      throw UsageError(
          fmt::format("the API key '{}' is shorter than {} characters: it can be guessed", key.name,
                      kMinSecretBytes));
    }
    if (!(key.share > 0) || !std::isfinite(key.share)) {
      throw UsageError(fmt::format("the API key '{}' has no share above 0", key.name));
    }
    std::string digest = digest_of(key.secret);
    if (std::ranges::find(digests_, digest) != digests_.end()) {
      throw UsageError(fmt::format("the API key '{}' is another's too", key.name));
    }
    digests_.push_back(std::move(digest));
    shares_.push_back(key.share);
  }
}

std::optional<size_t> Keyring::find(std::string_view authorization) const {
  if (is_open()) return 0;
  constexpr std::string_view kScheme = "bearer ";
  if (text::to_lower(authorization.substr(0, kScheme.size())) != kScheme) return std::nullopt;
  const std::string digest = digest_of(authorization.substr(kScheme.size()));
  const auto found = std::ranges::find(digests_, digest);
  if (found == digests_.end()) return std::nullopt;
  return static_cast<size_t>(found - digests_.begin());
}

uint64_t Keyring::tenant_of(size_t key) const {
  if (is_open()) return 0;
  const std::string& digest = digests_.at(key);
  return xxh3(digest.data(), digest.size());
}

std::vector<double> Keyring::shares() const { return is_open() ? std::vector<double>{1} : shares_; }

std::vector<ApiKey> read_keys(const std::string& text, const std::string& where) {
  std::vector<ApiKey> keys;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    ApiKey key;
    std::string share;
    std::string more;
    if (!(words >> key.name) || key.name.starts_with('#')) continue;
    words >> key.secret >> share >> more;
    const auto value = share.empty() ? std::optional(1.0) : number_in<double>(share);
    if (key.secret.empty() || !value || !more.empty()) {
      throw UsageError(fmt::format("'{}' line {}: not NAME KEY, and perhaps SHARE", where, number));
    }
    key.share = *value;
    keys.push_back(std::move(key));
  }
  if (keys.empty()) throw UsageError(fmt::format("'{}' has no keys: not one NAME KEY", where));
  return keys;
}

}  // namespace atl::openai
