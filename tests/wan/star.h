#pragma once
// Hosts in a star: each has one access link to an ideal hub. A packet from i to j goes up i's link
// and down j's, so
//   one-way delay = delay_i + delay_j     rate = min(up_i, down_j)     loss = 1 -
//   (1-loss_i)(1-loss_j)
// and what one host sends to several others shares its uplink, as it does at home.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host_namespace.h"
#include "pipe.h"

namespace atl::wan {

struct HostOptions {
  std::string name;
  PipeOptions up;    // From the host to the hub.
  PipeOptions down;  // From the hub to the host.
};

/// Applies "key=value,key=value" to a host. Throws UsageError naming the key and its range.
///   rate, up, down  Mbit/s of IP bytes, 0 = unlimited      delay  ms, one way, this link alone
///   loss            share of packets in each direction; loss_up, loss_down: in one
///   queue           KiB that wait in each direction
///   burst           bytes that an idle line sends at once
void apply_settings(HostOptions& host, const std::string& settings);

class Star {
 public:
  /// Host k (from 0) gets the address 10.77.0.(k+1).
  Star(const std::vector<HostOptions>& hosts, uint64_t seed, int mtu);
  ~Star();  // Ends all processes inside.

  /// Takes in what the hosts sent, hands over what has arrived. Returns when there is more to do.
  std::optional<Time> step(const Clock& clock);
  /// For how long packets may lie before anybody looks, as on a network card that coalesces its
  /// interrupts: a sixteenth of the shortest delay, at most a millisecond. No delay: not
  /// at all. Rates are not touched: on a busy line a packet's times follow from those of the one
  /// before it, not from when somebody looked.
  Duration tick() const;
  std::vector<int> devices() const;

  /// One command, its answer as one line of JSON; a wrong command answers {"error": ...}.
  ///   cut A [B]    nothing passes on A's access link (between A and B)
  ///   restore A [B]    set A key=value,...    stats    hosts
  std::string execute(const std::string& line, double cpu_seconds);

 private:
  struct Host {
    HostOptions options;
    HostNamespace space;
    Pipe up;
    Pipe down;
    int64_t refused = 0;  // Packets that the kernel did not take.
  };
  void take_in(Host& host, Time now);
  void hand_over(Time now);
  size_t index_of(const std::string& name) const;
  std::string answer(const std::vector<std::string>& words, double cpu_seconds);
  void cut(const std::vector<std::string>& words, bool is_cut);
  std::string stats(double cpu_seconds) const;
  std::string describe() const;

  std::vector<Host> hosts_;
  std::set<std::pair<size_t, size_t>> cut_pairs_;  // (smaller, larger) index.
};

}  // namespace atl::wan
