#pragma once
// What striped_transport adds to each frame of a bulk connection: a trailer, so that the frame's
// own bytes stay where they are. Pure.
#include <array>
#include <cstdint>
#include <optional>

#include "atoll/net/transport.h"

namespace atl::net {

/// Names a bulk connection to the lanes that join it; hard to guess.
using StripeToken = std::array<std::byte, 16>;

enum class StripeKind : uint8_t {
  kData,   // A frame of the connection.
  kAck,    // Nothing but the trailer.
  kToken,  // First on a connection's first lane: the name by which others will join.
  kJoin,   // First on each other lane: the name of the connection that it belongs to.
};

struct StripeTrailer {
  StripeKind kind = StripeKind::kData;
  uint64_t number = 0;   // Of a frame of data, from 0 in the order sent.
  uint64_t arrived = 0;  // How many of the other side's have arrived here, without a gap.
};

constexpr size_t kStripeTrailerBytes = 1 + 8 + 8;

Bytes encode(const StripeTrailer& trailer);
/// Takes it off the frame's end. Nothing if it is none.
std::optional<StripeTrailer> take_trailer(Bytes& frame);
/// The token that the frame consists of once its trailer is off.
std::optional<StripeToken> read_token(const Bytes& frame);

}  // namespace atl::net
