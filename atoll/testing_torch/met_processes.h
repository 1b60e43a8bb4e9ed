#pragma once
// For tests: the processes of an island, as threads of this one, which meet at a free port.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/clock.h"
#include "atoll/group/processes.h"
#include "atoll/run/process_place.h"

namespace atl::group {

/// Of an island of `size`; process 0 is to listen at a port that is open already.
inline std::vector<run::ProcessPlace> places_of(int64_t size) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ATOLL_CHECK(::bind(listener, any, length) == 0 && ::listen(listener, 16) == 0 &&
              ::getsockname(listener, any, &length) == 0);
  std::vector<run::ProcessPlace> places;
  for (int64_t rank = 0; rank < size; ++rank) {
    places.push_back({.rank = rank,
                      .size = size,
                      .local_rank = rank,
                      .local_size = size,
                      .address = "127.0.0.1",
                      .port = ntohs(address.sin_port),
                      .listener = rank == 0 ? listener : -1});
  }
  return places;
}

inline std::unique_ptr<Processes> meet(const run::ProcessPlace& place,
                                       Duration timeout = std::chrono::seconds(30)) {
  static const SystemClock clock;
  return std::make_unique<Processes>(ProcessesOptions{.place = place, .timeout = timeout}, clock);
}

/// Each does that, on a thread of its own; what it threw, or nothing, in order.
inline std::vector<std::string> together(int64_t size, const std::function<void(Processes&)>& act) {
  std::vector<std::future<std::string>> ends;
  for (const run::ProcessPlace& place : places_of(size)) {
    ends.push_back(std::async(std::launch::async, [place, &act]() -> std::string {
      try {
        const auto processes = meet(place);
        act(*processes);
        if (place.leads()) processes->done();
        return "";
      } catch (const std::exception& error) {
        return error.what();
      }
    }));
  }
  std::vector<std::string> messages;
  for (auto& end : ends) messages.push_back(end.get());
  return messages;
}

}  // namespace atl::group
