#pragma once
// Where the coordinator of an encrypted run is, for who knows an address of it that may be an old
// one: the machine got another by DHCP, or its name is not known here. On the same LAN it is found
// (net/discovery.h).
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/net/trust.h"

namespace atl::run {

/// Whether somebody was there, whose answer will be the same the next time.
bool is_verdict(const std::string& reason);

/// Asks the LAN now and then, while tries at the known addresses fail.
class LanSearch {
 public:
  /// An address on this machine is meant to be there: nobody else is asked.
  LanSearch(std::string fingerprint, std::vector<std::string> known, const Clock& clock);

  /// After a try that failed: who says on the LAN that it coordinates the run, but for the known.
  /// Any of them may be a liar. Empty as well where it is not time to ask again.
  std::vector<std::string> ask();

 private:
  const std::string fingerprint_;
  const std::vector<std::string> known_;
  const Clock& clock_;
  int num_tries_ = 0;
};

/// Says once that nobody answers, some seconds after it was made.
class UnansweredNotice {
 public:
  UnansweredNotice(std::string coordinator, EventSink tell, Time now);

  /// After a try that failed.
  void tick(Time now);

 private:
  const std::string coordinator_;
  const EventSink tell_;
  Time due_;
};

struct CoordinatorSearch {
  std::string known;        // HOST:PORT where it was.
  std::string fingerprint;  // Of the run's authority.
  std::shared_ptr<net::Trust> trust;
  Duration patience{};
  std::function<bool()> cancelled;
  EventSink tell;
};

/// An address where the coordinator answers and proves itself: the known one, else one on this LAN.
/// The known one too where it is on this machine, and where none answers within the patience: who
/// calls there then hears why.
std::string seek_coordinator(const CoordinatorSearch& search, const Clock& clock);

}  // namespace atl::run
