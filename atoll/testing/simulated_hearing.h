#pragma once
// For tests: what a simulated island hears, looked at beside its engine.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/wire.h"
#include "atoll/testing/invariants.h"

namespace atl::collective {

/// For a person who looks for a mistake.
inline void trace_heard(const net::Event& event, const std::string& name, Time now) {
  std::string what;
  if (const auto* received = std::get_if<net::Received>(&event)) {
    try {
      const swarm::Message message = swarm::decode(received->frame);
      const swarm::Header header = std::visit([](const auto& m) { return m.header; }, message);
      what = fmt::format("{} of term {}, round {}, attempt {}", swarm::kind_name(message),
                         header.term, header.round, header.attempt);
      if (what.starts_with("Alive")) return;
    } catch (const InputError& error) {
      what = error.what();
    }
    what += fmt::format(" over {}", received->connection);
  } else if (const auto* opened = std::get_if<net::Opened>(&event)) {
    what = fmt::format("opened {} ({})", opened->connection, opened->inbound ? "in" : "out");
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    what = fmt::format("lost {}: {}", lost->connection, lost->reason);
  }
  fmt::print("{:.3f} {} heard {}\n", seconds(now - Time{}), name, what);
}

/// The membership that the last Start was about, as the invariants know it.
struct Heard {
  void hear(const net::Event& event, const std::string& name, Invariants& invariants) {
    const auto* received = std::get_if<net::Received>(&event);
    if (received == nullptr || received->frame.size() < 8) return;
    try {
      const swarm::Message message = swarm::decode(received->frame);
      if (const auto* begins = std::get_if<swarm::Start>(&message)) {
        epoch = invariants.epoch_of(begins->header.term, begins->number);
        held = begins->held;
      }
      const auto* welcome = std::get_if<swarm::Welcome>(&message);
      const auto* resumed = std::get_if<swarm::Resumed>(&message);
      if (welcome == nullptr && resumed == nullptr) return;
      const uint64_t term = welcome != nullptr ? welcome->header.term : resumed->header.term;
      invariants.heard(name, std::exchange(term_, term), term);
    } catch (const InputError&) {  // The engine sees to it.
    }
  }

  Invariants::Epoch epoch = -1;
  std::vector<swarm::Held> held;

 private:
  uint64_t term_ = 0;
};

}  // namespace atl::collective
