#include "atoll/net/stripe_frame.h"

#include <algorithm>

namespace atl::net {

Bytes encode(const StripeTrailer& trailer) {
  return ByteWriter().put(trailer.kind).put(trailer.number).put(trailer.arrived).take();
}

std::optional<StripeTrailer> take_trailer(Bytes& frame) {
  if (frame.size() < kStripeTrailerBytes) return std::nullopt;
  ByteReader reader(std::span<const std::byte>(frame).last(kStripeTrailerBytes));
  const auto kind = reader.get<uint8_t>();
  if (kind > static_cast<uint8_t>(StripeKind::kJoin)) return std::nullopt;
  const StripeTrailer trailer{.kind = static_cast<StripeKind>(kind),
                              .number = reader.get<uint64_t>(),
                              .arrived = reader.get<uint64_t>()};
  frame.resize(frame.size() - kStripeTrailerBytes);
  return trailer;
}

std::optional<StripeToken> read_token(const Bytes& frame) {
  StripeToken token;
  if (frame.size() != token.size()) return std::nullopt;
  std::ranges::copy(frame, token.begin());
  return token;
}

}  // namespace atl::net
