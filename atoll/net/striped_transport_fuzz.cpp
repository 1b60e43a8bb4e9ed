// Frames of any bytes, and of the right form with any numbers, on the lanes of a bulk connection:
// what comes out is in order, once, and stops at Lost.
#include <cstdint>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/net/stripe_frame.h"
#include "atoll/net/striped_transport.h"

namespace {

using atl::net::ConnectionId;
using atl::net::Event;
using atl::net::Lost;
using atl::net::Opened;
using atl::net::Plane;
using atl::net::Received;
using atl::net::Sent;
using atl::net::StripeKind;
using atl::net::StripeTrailer;
using atl::net::Transport;

/// Takes everything and tells nobody.
class Nowhere final : public Transport {
 public:
  atl::Result<std::string> listen(const std::string& address) override { return address; }
  ConnectionId connect(const std::string& /*address*/, Plane /*plane*/) override { return ++last_; }
  ConnectionId meet(const atl::net::Meeting& /*meeting*/, Plane /*plane*/) override {
    return ++last_;
  }
  Sent send(ConnectionId /*connection*/, atl::Bytes /*frame*/) override { return Sent::kAccepted; }
  void close(ConnectionId /*connection*/) override {}
  atl::net::Traffic traffic() const override { return {}; }

 private:
  ConnectionId last_ = 1000;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const atl::SystemClock clock;
  Transport::Sink inner;
  bool is_lost = false;
  uint64_t next = 0;
  const auto transport = atl::net::make_striped_transport(
      {.window_bytes = 4096},
      [&](Transport::Sink sink) {
        inner = std::move(sink);
        return std::make_unique<Nowhere>();
      },
      clock,
      [&](const Event& event) {
        ATOLL_CHECK(!is_lost, "nothing comes after Lost");
        is_lost = std::holds_alternative<Lost>(event);
        const auto* received = std::get_if<Received>(&event);
        if (received == nullptr) return;
        const uint64_t number = next++;
        if (received->frame.size() != sizeof(number)) return;
        ATOLL_CHECK(atl::ByteReader(received->frame).get<uint64_t>() == number, "in order");
      });
  inner(Opened{1, true, Plane::kBulk, "stranger"});
  inner(Opened{2, true, Plane::kLane, "stranger"});
  atl::ByteReader reader(std::as_bytes(std::span(data, size)));
  try {
    for (int i = 0; i < 64 && !is_lost; ++i) {
      const auto choice = reader.get<uint8_t>();
      const ConnectionId lane = 1 + (choice & 1);
      StripeTrailer trailer{.kind = static_cast<StripeKind>((choice >> 1) % 4),
                            .number = reader.get<uint8_t>() % 16U};
      if ((choice & 8) != 0) trailer.arrived = reader.get<uint64_t>();
      atl::Bytes frame = atl::ByteWriter().put(trailer.number).take();
      if (trailer.kind == StripeKind::kToken || trailer.kind == StripeKind::kJoin) frame.resize(16);
      if ((choice & 16) != 0) frame.resize(reader.get<uint8_t>() * size_t{16}, std::byte{1});
      const atl::Bytes end = atl::net::encode(trailer);
      frame.insert(frame.end(), end.begin(), end.end());
      if ((choice & 32) != 0) frame.resize(reader.get<uint8_t>());
      // A frame of eight bytes that is none of the numbered ones would look out of order.
      if (frame.size() == sizeof(next) + atl::net::kStripeTrailerBytes && (choice & 48) != 0)
        continue;
      inner(Received{lane, std::move(frame)});
    }
  } catch (const atl::InputError&) {
    return 0;  // The input was too short.
  }
  return 0;
}
