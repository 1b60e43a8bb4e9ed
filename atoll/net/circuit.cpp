#include "atoll/net/circuit.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/name.h"
#include "atoll/net/address.h"

namespace atl::net {
namespace {

constexpr size_t kRequestHeadBytes = 16 + 2;
constexpr size_t kAnswerHeadBytes = 3;
constexpr size_t kMaxRefusalBytes = kCircuitAnswerBytes - kAnswerHeadBytes;
static_assert(kRequestHeadBytes + kMaxCircuitAddressBytes <= kCircuitRequestBytes);
static_assert(kAnswerHeadBytes + 2 * kMaxCircuitAddressBytes <= kCircuitAnswerBytes);

bool is_text(std::string_view text) { return printable(text) == text; }

/// In the spelling that Address::text() has.
bool is_address(std::string_view text) {
  if (text.size() > kMaxCircuitAddressBytes || !is_text(text)) return false;
  const auto address = parse_address(text);
  return address && address->text() == text;
}

bool are_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte one) { return one == std::byte{0}; });
}

void put_text(std::span<std::byte> out, std::string_view text) {
  std::ranges::copy(as_byte_span(text), out.begin());
}

}  // namespace

std::array<std::byte, kCircuitRequestBytes> encode(const CircuitRequest& request) {
  ATOLL_CHECK(request.local.size() <= kMaxCircuitAddressBytes);
  std::array<std::byte, kCircuitRequestBytes> bytes{};
  std::ranges::copy(request.circuit, bytes.begin());
  bytes[16] = static_cast<std::byte>(request.calls);
  bytes[17] = static_cast<std::byte>(request.local.size());
  put_text(std::span(bytes).subspan(kRequestHeadBytes), request.local);
  return bytes;
}

std::optional<CircuitRequest> decode_circuit_request(
    std::span<const std::byte, kCircuitRequestBytes> bytes) {
  const auto size = std::to_integer<size_t>(bytes[17]);
  if (std::to_integer<int>(bytes[16]) > 1 || size > kMaxCircuitAddressBytes) return std::nullopt;
  CircuitRequest request;
  std::ranges::copy(bytes.first(request.circuit.size()), request.circuit.begin());
  request.calls = bytes[16] == std::byte{1};
  request.local = as_text(bytes.subspan(kRequestHeadBytes, size));
  if (!request.local.empty() && !is_address(request.local)) return std::nullopt;
  if (!are_zeros(bytes.subspan(kRequestHeadBytes + size))) return std::nullopt;
  return request;
}

std::array<std::byte, kCircuitAnswerBytes> encode(const CircuitAnswer& answer) {
  std::array<std::byte, kCircuitAnswerBytes> bytes{};
  const bool is_refused = !answer.refusal.empty();
  const auto first = std::string_view(is_refused ? answer.refusal : answer.observed)
                         .substr(0, is_refused ? kMaxRefusalBytes : kMaxCircuitAddressBytes);
  const std::string_view second = is_refused ? "" : std::string_view(answer.local);
  ATOLL_CHECK(second.size() <= kMaxCircuitAddressBytes);
  bytes[0] = static_cast<std::byte>(is_refused);
  bytes[1] = static_cast<std::byte>(first.size());
  bytes[2] = static_cast<std::byte>(second.size());
  put_text(std::span(bytes).subspan(kAnswerHeadBytes), first);
  put_text(std::span(bytes).subspan(kAnswerHeadBytes + first.size()), second);
  return bytes;
}

std::optional<CircuitAnswer> decode_circuit_answer(
    std::span<const std::byte, kCircuitAnswerBytes> bytes) {
  const auto first = std::to_integer<size_t>(bytes[1]);
  const auto second = std::to_integer<size_t>(bytes[2]);
  if (std::to_integer<int>(bytes[0]) > 1 || kAnswerHeadBytes + first + second > bytes.size()) {
    return std::nullopt;
  }
  const auto text = as_text(bytes.subspan(kAnswerHeadBytes));
  const std::string_view rest = text.substr(first + second);
  if (!are_zeros(as_byte_span(rest))) return std::nullopt;
  CircuitAnswer answer;
  if (bytes[0] == std::byte{1}) {
    answer.refusal = text.substr(0, first);
    const bool is_one = first > 0 && second == 0 && is_text(answer.refusal);
    return is_one ? std::optional(answer) : std::nullopt;
  }
  answer.observed = text.substr(0, first);
  answer.local = text.substr(first, second);
  const bool is_one =
      is_address(answer.observed) && (answer.local.empty() || is_address(answer.local));
  return is_one ? std::optional(answer) : std::nullopt;
}

}  // namespace atl::net
