#pragma once
// What a member and a relay say to each other before the relay passes on what two members say:
// one record each way, of fixed size, so that nobody has to believe a length. Pure.
//
//   request: the circuit: 16 bytes | calls: 1 | length: 1 | the own address: text | zeros to 128
//   answer:  refused: 1 byte | lengths: 2 x 1 | texts: the reason, or two addresses | zeros to 256
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "atoll/net/transport.h"

namespace atl::net {

constexpr size_t kCircuitRequestBytes = 128;
constexpr size_t kCircuitAnswerBytes = 256;
/// Of HOST:PORT, the host a number.
constexpr size_t kMaxCircuitAddressBytes = 110;

struct CircuitRequest {
  CircuitId circuit{};
  bool calls = false;
  /// Where the member's socket is, as it sees it; empty when it wants no direct connection.
  std::string local;

  bool operator==(const CircuitRequest&) const = default;
};

/// Both are there, or why not.
struct CircuitAnswer {
  std::string refusal;   // Empty: they are.
  std::string observed;  // Where the relay sees the other member.
  std::string local;     // Where that sees itself; empty when it wants no direct connection.

  bool operator==(const CircuitAnswer&) const = default;
};

std::array<std::byte, kCircuitRequestBytes> encode(const CircuitRequest& request);
std::array<std::byte, kCircuitAnswerBytes> encode(const CircuitAnswer& answer);
/// Nothing when it is none.
std::optional<CircuitRequest> decode_circuit_request(
    std::span<const std::byte, kCircuitRequestBytes> bytes);
std::optional<CircuitAnswer> decode_circuit_answer(
    std::span<const std::byte, kCircuitAnswerBytes> bytes);

}  // namespace atl::net
