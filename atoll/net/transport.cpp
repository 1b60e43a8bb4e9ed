#include "atoll/net/transport.h"

namespace atl::net {

std::span<const std::byte> SharedFrame::body() const {
  if (blob == nullptr) return {};
  return std::span(*blob).subspan(begin, num_bytes);
}

Bytes SharedFrame::joined() const {
  Bytes whole;
  whole.reserve(size());
  for (const auto part : parts()) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

Sent Transport::send_shared(ConnectionId connection, SharedFrame frame) {
  return send(connection, frame.joined());
}

}  // namespace atl::net
