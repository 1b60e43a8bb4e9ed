#include "atoll/group/meeting.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdlib>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/model/torch_error.h"
#include "atoll/run/process_listener.h"

namespace atl::group {
namespace {

std::chrono::milliseconds milliseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// By itself c10d would listen at all addresses of this machine.
std::optional<int> listener_of(const run::ProcessPlace& place) {
  if (place.listener >= 0) return place.listener;
  const auto listener = run::listen_for_processes(place.address, place.port);
  return listener ? std::optional(listener->socket) : std::nullopt;
}

Store connect(const run::ProcessPlace& place, Duration patience, bool opens) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = opens;
  options.waitWorkers = false;
  options.timeout = milliseconds_of(patience);
  const std::string where = fmt::format("{}:{}", place.address, place.port);
  const auto cannot_listen = [&](const std::string& reason) {
    return InputError(fmt::format(
        "process 0 cannot listen at {}, where the island's {} processes are to meet: {}; choose "
        "another MASTER_PORT",
        where, place.size, reason));
  };
  if (opens) {
    try {
      options.masterListenFd = listener_of(place);
    } catch (const InputError& error) {
      throw cannot_listen(error.what());
    }
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    return c10::make_intrusive<c10d::PrefixStore>("atoll/" + place.attempt, std::move(store));
  } catch (const c10::Error& error) {
    const std::string reason = model::first_line(error);
    if (opens) throw cannot_listen(reason);
    throw InputError(fmt::format(
        "process {} of {} found nobody at {}, where the island's processes meet, for {:.0f} s "
        "(train.process_timeout): was process 0 started, and is MASTER_ADDR its machine?",
        place.rank, place.size, where, seconds(patience)));
  }
}

}  // namespace

Store open_store(const run::ProcessPlace& place, Duration patience) {
  // c10d tells of each lost connection by itself, with a page of stack; whoever wants that says so.
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  return connect(place, patience, place.leads() && !place.is_kept_open);
}

Store connect_again(const run::ProcessPlace& place, Duration patience) {
  return connect(place, patience, false);
}

void write(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::optional<std::string> read(c10d::Store& store, const std::string& key, Duration patience) {
  if (patience == Duration::zero()) {
    if (!store.check({key})) return std::nullopt;
  } else {
    try {
      store.wait({key}, milliseconds_of(patience));
    } catch (const c10::DistNetworkError&) {
      throw;
    } catch (const c10::DistStoreError&) {  // It has not come.
      return std::nullopt;
    }
  }
  const std::vector<uint8_t> bytes = store.get(key);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace atl::group
