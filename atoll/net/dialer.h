#pragma once
// A TCP connection to "HOST:PORT", made without holding up anybody: names are looked up on a thread
// of their own, and the addresses of a name are tried one after the other.
#include <functional>
#include <memory>

#include "atoll/base/descriptor.h"
#include "atoll/base/result.h"
#include "atoll/net/address.h"
#include "atoll/net/event_loop.h"

namespace atl::net {

/// The socket, or why there is none: called once, on the loop; not when the loop ends before.
using Dialled = std::function<void(Result<Descriptor>)>;

/// Whether others may call from the port that a socket calls from, or be called there
/// (net/punch.h).
enum class Port : uint8_t { kOwn, kShared };

/// Gives up after `patience`.
void dial(const std::shared_ptr<EventLoop>& loop, const Address& address, Duration patience,
          Dialled done, Port port = Port::kOwn);

}  // namespace atl::net
