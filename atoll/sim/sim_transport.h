#pragma once
// A network made from one seed: hosts by name, links with latency and bandwidth, connections that
// break, processes that die. The protocol code that runs over TCP runs over it unchanged, in
// virtual time and one thread: equal seed and calls, equal events, to the bit.
//
// Every process that listens is a relay as well, where two others may meet (Transport::meet).
//
// What it keeps of TCP: order and integrity within a connection, none between connections; a
// connection breaks rather than lose a frame. What it leaves out: congestion control, shared
// uplinks (each ordered pair of hosts is a link of its own).
//
// Sinks run inside the event queue. To act on an event a host adds an action
// (`network.queue().after({}, ...)`) or is polled by whoever steps the queue.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/net/transport.h"
#include "atoll/sim/event_queue.h"

namespace atl::sim {

/// One direction between two hosts.
struct LinkOptions {
  Duration latency = std::chrono::milliseconds(1);
  Duration jitter{};  // Each frame adds a uniform part of it; order within a connection stays.
  double bits_per_second = 0;  // 0: unlimited. Control frames overtake bulk frames.
  double break_chance = 0;     // That a frame breaks its connection instead of arriving.
};

struct SimOptions {
  uint64_t seed = 0;
  LinkOptions link;                      // Of every pair that set_link() has not named.
  size_t queue_bytes = size_t{4} << 20;  // Per connection and direction, before kFull.
  Duration connect_timeout = std::chrono::seconds(5);     // To a host that does not answer.
  Duration keepalive_timeout = std::chrono::seconds(20);  // A silent connection is Lost after it.
  Duration close_timeout = std::chrono::seconds(2);       // For what is queued when close() comes.
};

/// Owns hosts' connections; must outlive every transport it made.
class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options);
  ~SimNetwork();

  EventQueue& queue() { return queue_; }
  /// A process on `host`. listen("ANY:PORT") there is reached from all hosts as "host:PORT".
  /// Destroying the transport ends the process in good order. Several may share a host.
  std::unique_ptr<net::Transport> make_transport(const std::string& host,
                                                 net::Transport::Sink sink);

  /// Both directions between the hosts; existing connections change too.
  void set_link(const std::string& a, const std::string& b, LinkOptions link);
  /// Frames from `from` to `to` stay in flight until heal(); a connection whose frames or
  /// keepalives wait longer than keepalive_timeout is Lost on both sides.
  void cut_one_way(const std::string& from, const std::string& to);
  void cut(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  /// kill -9 of every process on the host: peers see Lost after the latency. The dead transports
  /// call their sinks no more and accept nothing; the host can be given new ones.
  void crash(const std::string& host);
  /// Breaks every connection between the hosts at once, as a router that forgets its state does.
  void break_connections(const std::string& a, const std::string& b);

  /// Sees each frame before it leaves and may change it: what a faulty or hostile peer would send.
  using Tamper = std::function<void(const std::string& from, const std::string& to, Bytes& frame)>;
  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }

 private:
  class Host;   // One process: the Transport.
  struct End;   // One side of a connection.
  struct Link;  // One direction between two hosts.
  struct Item;  // A frame, or the end of a connection, on its way.

  Link& link(const std::string& from, const std::string& to);
  bool is_cut(const std::string& a, const std::string& b);
  /// Anywhere on the way of what the end sends.
  bool is_cut_from(const End& end);
  /// From 0 to 1, the next of the seed's numbers.
  double draw();
  Duration flight_time(const Link& link);
  /// All the way of what the end sends.
  Duration flight_time_from(const End& end);
  void arrive_at_listener(const std::shared_ptr<End>& client, const std::string& address);
  void arrive_at_relay(const std::shared_ptr<End>& end, const net::Meeting& meeting);
  void join(const std::shared_ptr<End>& caller, const std::shared_ptr<End>& called,
            const std::string& relay, bool punched);
  void open(const std::shared_ptr<End>& end, bool inbound, const std::string& remote);
  void break_circuits(const Host& relay);
  void transmit(const std::shared_ptr<End>& from, Bytes frame, bool last);
  void depart(const std::shared_ptr<Item>& item);
  void arrive(const std::shared_ptr<Item>& item);
  void deliver(const Item& item);
  void release_held(const std::string& from, const std::string& to);
  void begin_close(const std::shared_ptr<End>& end);
  /// Reports the end of a connection to its process, once.
  static void lose(End& end, const std::string& reason);
  /// Tells the other side, after the latency, that the connection is gone.
  void break_far_side(const End& end, const std::string& reason);
  void lose_silent_connections(const std::string& from, const std::string& to);
  std::vector<std::shared_ptr<End>> ends_between(const std::string& a, const std::string& b) const;

  EventQueue queue_;
  SimOptions options_;
  Tamper tamper_;
  uint64_t num_draws_ = 0;
  net::ConnectionId num_connections_ = 0;
  uint16_t last_port_ = 40'000;
  std::map<std::pair<std::string, std::string>, Link> links_;
  std::map<std::string, Host*> listeners_;  // By "host:port".
  struct Waiting {
    std::weak_ptr<End> end;
    bool calls = false;
    bool may_punch = false;
  };
  std::map<std::pair<std::string, net::CircuitId>, Waiting> waiting_;  // By the relay's address.
  std::vector<Host*> hosts_;  // In the order made: it decides the order of events.
};

}  // namespace atl::sim
