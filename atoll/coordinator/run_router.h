#pragma once
// Which of a coordinator's runs a connection belongs to. Its first message says so, Hello by the
// run's name and Resume by the run's id, within what its certificate allows: of an encrypted run
// only its own members hear. All that follows goes to that run and to no other. A pure
// state machine: events and the time go in, actions come out. Strangers end here: of one who says
// nothing in time, no message, another message first, or asks for a run that is not here, no run
// ever hears. Nor of one who only measures its line (Probe): it is answered here, within the bounds
// of probers.h.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/chain/messages.h"
#include "atoll/coordinator/probers.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

/// Throws UsageError when one of several runs has no valid name, or another's.
void require_names(const std::vector<std::string>& names);

/// Not thread-safe. Every method may return actions; do them in order.
class RunRouter {
 public:
  using Connection = net::ConnectionId;

  struct Run {
    std::string name;  // That newcomers ask for. May be empty for the only one.
    std::string id;    // In every message.
    /// The fingerprint of its authority, whose members alone come to it; empty in the clear.
    std::string authority;
  };
  /// The event is for that run: its place in the list.
  struct Deliver {
    size_t run = 0;
    net::Event event;
    bool is_for_directory = false;  // Of that run.
  };
  struct Send {
    Connection to = 0;
    Message message;
  };
  /// The last word to a server or a gateway.
  struct RefuseChain {
    Connection to = 0;
    chain::Refused message;
  };
  /// A ProbeReply.
  struct Reply {
    Connection to = 0;
    size_t num_bytes = 0;
  };
  /// What was sent before is delivered, then the connection ends.
  struct Close {
    Connection connection = 0;
  };
  struct Log {
    std::string line;
  };
  using Action = std::variant<Deliver, Send, RefuseChain, Reply, Close, Log>;
  using Actions = std::vector<Action>;

  /// At least one run. Throws UsageError when they cannot be told apart, by name, by id, by their
  /// authorities.
  explicit RunRouter(std::vector<Run> runs, Duration hello_timeout = std::chrono::seconds(10));

  Actions handle(net::Event event, Time now);
  /// Call at next_deadline() or later.
  Actions tick(Time now);
  Time next_deadline() const;

  /// The run is over: whoever asks for it is told so. What its connections still say goes to it.
  /// The last of all runs takes the connections of directories with it.
  Actions end(size_t run);
  /// The run stands still, and its coordinator has to be started again: its connections are closed,
  /// and so are those of who comes back to it, without a word, as if nobody were here. So they
  /// wait.
  Actions abandon(size_t run);

  /// No run goes on.
  bool is_over() const;
  /// All connections are gone: what was said last was delivered.
  bool is_drained() const { return num_open_ == 0; }

 private:
  enum class State : uint8_t { kServed, kOver, kAbandoned };
  struct Routed {
    Run run;
    State state = State::kServed;
  };

  void opened(const net::Opened& event, Time now);
  void greet(net::Opened stranger, net::Received first, Time now);
  void greet_chain(net::Opened stranger, net::Received first);
  void begin_probing(const net::Opened& stranger, const Probe& probe, Time now);
  void go_on_probing(const net::Event& event, Time now);
  void answer(Connection connection, const Probe& probe, Time now);
  void turn_away(Connection prober, const std::string& reason, Time now);
  /// The run that a first message asks for, of those with that authority; fails with what to tell
  /// its sender.
  Result<size_t> find(const Message& first, const std::string& authority) const;
  Result<size_t> over_or(size_t run) const;
  std::string names(const std::string& authority) const;
  void refuse(Connection connection, const std::string& reason);
  Actions end(size_t run, State state);
  Actions take();

  struct Stranger {
    net::Opened opened;
    Time since{};
  };
  Duration hello_timeout_;
  std::vector<Routed> runs_;
  std::map<Connection, Stranger> strangers_;  // Connected, have said nothing.
  struct Route {
    size_t run = 0;
    bool is_for_directory = false;
  };
  std::map<Connection, Route> routes_;
  Probers probers_;
  int64_t num_open_ = 0;
  Actions actions_;
};

}  // namespace atl::swarm
