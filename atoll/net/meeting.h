#pragma once
// A member's side where two meet at a relay: asks it for the other, tries a direct connection
// through what translates the addresses of both, and else talks through the relay. In either case
// the two greet each other end to end: who relays, and who answers at a punched address, is not
// believed. On one loop.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/result.h"
#include "atoll/net/address.h"
#include "atoll/net/byte_stream.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/greeting.h"
#include "atoll/net/transport.h"
#include "atoll/net/trust.h"

namespace atl::net {

struct MeetingTerms {
  Address relay;
  CircuitId circuit{};
  bool calls = false;
  bool may_punch = true;
  Plane plane = Plane::kBulk;
  std::shared_ptr<Trust> trust;  // Null: in the clear.
  /// In the clear a direct connection may go to other machines.
  bool any_address = false;
  Duration patience{};        // To reach the relay, then for the other to come, then to greet it.
  Duration punch_patience{};  // Then the relay passes on what is said.
  /// Why the other is not taken: of who calls, and of whom one calls.
  Greeting::Objection objection;
};

/// The stream to the other, greeted.
struct Met {
  std::unique_ptr<ByteStream> stream;
  Way way = Way::kRelayed;
  std::string remote;  // For people.
};

/// From any thread. `done` is called once, on the loop; not when the loop ends before. What is
/// returned gives the meeting up, from any thread.
using OnMet = std::function<void(Result<Met>)>;
std::function<void()> begin_meeting(const std::shared_ptr<EventLoop>& loop, MeetingTerms terms,
                                    OnMet done);

}  // namespace atl::net
