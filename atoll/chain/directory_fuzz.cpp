// What strangers say to a directory, in any order and at any time, neither brings it down nor makes
// it place somebody where it cannot be.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/chain/directory.h"
#include "atoll/chain/lease.h"

namespace {

using namespace std::chrono_literals;

/// Bytes as a lease, mostly one that can be.
atl::chain::Lease lease_of(atl::ByteReader& in) {
  const auto number = [&] { return static_cast<int32_t>(in.get<int8_t>()); };
  atl::chain::Lease lease{.name = std::string(1, static_cast<char>('a' + in.get<uint8_t>() % 8)),
                          .address = "h:1",
                          .model = "m",
                          .digest = in.get<uint8_t>() % 4 == 0 ? "e" : "d",
                          .num_layers = 16,
                          .max_layers = number()};
  lease.state = static_cast<atl::chain::LeaseState>(in.get<uint8_t>() % 4);
  const uint8_t traits = in.get<uint8_t>();
  if (traits % 16 == 0) lease.num_layers = number();
  lease.is_fixed = traits % 8 == 1;
  if (lease.state != atl::chain::LeaseState::kWaiting) lease.layers = {number(), number()};
  lease.layers_per_s = in.get<uint8_t>() % 4 == 0 ? in.get<double>() : in.get<uint8_t>();
  return lease;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  atl::ByteReader in(std::as_bytes(std::span(data, size)));
  atl::Time now{};
  atl::chain::Directory directory(now);
  std::array<atl::chain::Directory::Connection, 16> slots{};  // 0: no connection.
  std::map<atl::chain::Directory::Connection, atl::chain::Lease> offered;
  const auto look_at = [&](const atl::chain::Directory::Actions& actions) {
    for (const auto& action : actions) {
      if (const auto* close = std::get_if<atl::chain::Directory::Close>(&action)) {
        std::ranges::replace(slots, close->connection, atl::chain::Directory::Connection{0});
      }
      const auto* send = std::get_if<atl::chain::Directory::Send>(&action);
      const auto* place = send ? std::get_if<atl::chain::Place>(&send->message) : nullptr;
      if (place == nullptr) continue;
      ATOLL_CHECK(atl::chain::fault_of(place->layers, offered.at(send->to)).empty());
    }
  };
  atl::chain::Directory::Connection last = 0;
  try {
    while (true) {
      auto& connection = slots[in.get<uint8_t>() % slots.size()];
      switch (in.get<uint8_t>() % 9) {
        case 0:
          if (connection != 0) look_at(directory.lost(connection, now));
          connection = ++last;
          look_at(directory.opened(connection, {}, now));
          break;
        case 1:
          if (connection != 0) look_at(directory.lost(connection, now));
          connection = 0;
          break;
        case 2:
          look_at(directory.received(connection, atl::chain::Watch{.digest = "d"}, now));
          break;
        case 3:
          now += in.get<uint8_t>() * 50ms;
          break;
        case 4:
          look_at(directory.tick(now));
          break;
        case 5:
          look_at(directory.received(
              connection, atl::chain::Report{.server = lease_of(in).name, .reason = {}}, now));
          break;
        default:
          offered[connection] = lease_of(in);
          look_at(directory.received(connection, atl::chain::Offer{offered.at(connection)}, now));
      }
    }
  } catch (const atl::InputError&) {  // The bytes are at an end.
  }
  return 0;
}
