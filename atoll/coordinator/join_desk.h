#pragma once
// Where strangers ask a coordinator for a certificate, and members for their next one: one question
// for each connection, one answer, and its end. Who gets what is decided elsewhere
// (identity/registrar.h). Pure; not thread-safe.
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/identity/registrar.h"
#include "atoll/net/transport.h"

namespace atl::swarm {

class JoinDesk {
 public:
  static constexpr size_t kMost = 64;            // Strangers at once; members always get in.
  static constexpr int64_t kMostOfOneGroup = 4;  // Of them from one address.
  static constexpr Duration kPatience = std::chrono::seconds(10);

  /// The reply to a request about that run (its authority's fingerprint).
  using Answer = std::function<std::string(const std::string& run, std::string_view request,
                                           const identity::Caller&)>;

  /// The last word on a connection, which may be empty; then it is closed.
  struct LastWord {
    net::ConnectionId connection = 0;
    Bytes frame;
  };

  explicit JoinDesk(Answer answer) : answer_(std::move(answer)) {}

  /// Whether the event is of a connection to this desk, which then has dealt with it.
  bool handle(const net::Event& event, Time now);
  void tick(Time now);
  /// What is to be said since the last call.
  std::vector<LastWord> take_last_words();

 private:
  struct Visitor {
    identity::Caller caller;
    std::string run;
    std::string group;  // Of its address (identity/guess_limit.h).
    Time since;
    bool is_answered = false;
  };

  void opened(const net::Opened& opened, Time now);
  void dismiss(net::ConnectionId connection, Bytes frame = {});

  Answer answer_;
  std::map<net::ConnectionId, Visitor> visitors_;
  std::vector<LastWord> last_words_;
};

}  // namespace atl::swarm
