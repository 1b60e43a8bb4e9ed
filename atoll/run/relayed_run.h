#pragma once
// One of the runs that `atoll relay` serves: its certificate, its coordinator, wherever that is
// now, and its place there. Nothing of it is common to two runs, and none waits for another's
// coordinator.
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/net/transport.h"
#include "atoll/run/registration.h"
#include "atoll/run/relay_post.h"

namespace atl::run {

/// Of one thread.
class RelayedRun {
 public:
  /// By the membership in `folder`. `clock` must outlive it, and `tell` takes events from any
  /// thread. Throws InputError where the certificate cannot be used.
  RelayedRun(const std::filesystem::path& folder, const Clock& clock, EventSink tell);
  ~RelayedRun();
  RelayedRun(const RelayedRun&) = delete;
  RelayedRun& operator=(const RelayedRun&) = delete;

  const std::shared_ptr<net::Trust>& trust() const { return certificate_.trust(); }

  /// Looks for its coordinator, for so long, in the background.
  void seek(Duration patience, std::function<bool()> cancelled);
  /// Now and then: takes its place once the coordinator was looked for, and keeps it. `address`:
  /// where members are told that the relay is, for a coordinator at such an address.
  void tick(net::Transport& transport, Time now,
            const std::function<std::string(const std::string& coordinator)>& address);
  void handle(const net::Event& event, Time now);

  /// Where members meet, once they are told of it; else empty.
  std::string taken_at() const;
  /// How it ended: the run is over, and how, or why its coordinator takes no relay.
  std::optional<Result<std::string>> end() const;

 private:
  const std::string name_;
  const EventSink tell_;
  Certificate certificate_;
  std::atomic<bool> is_ending_ = false;
  std::future<std::string> sought_;  // The coordinator; its end waits for the search's.
  std::string address_;
  std::optional<RelayPost> post_;
};

}  // namespace atl::run
