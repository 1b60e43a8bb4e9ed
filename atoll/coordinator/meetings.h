#pragma once
// Where members meet that cannot reach each other: which relays there are, which pairs want one,
// and who is told what when. Pure; the coordinator owns one.
//
// A pair wants a meeting from when one of the two says that it cannot reach the other until both
// can again, or one of them is no member any more. It is told of one at once and then, with growing
// pauses, of others, at another relay where there is one.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/hash.h"
#include "atoll/coordinator/status.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

class Meetings {
 public:
  using Pair = Pairs::value_type;
  using Connection = net::ConnectionId;
  static constexpr size_t kMostRelays = 64;
  static constexpr Duration kFirstPause = std::chrono::seconds(10);  // A meeting takes up to that.
  static constexpr Duration kLongestPause = std::chrono::minutes(2);
  static constexpr int64_t kBurst = 4;  // Told at once; a pair that breaks still has to wait then.
  static constexpr Duration kPatience = std::chrono::seconds(8);  // Of rounds, with a first one.

  /// A member that others can call, and which passes on what two others say.
  struct Host {
    int32_t number = 0;
    std::string name;
    std::string address;
  };
  struct Meeting {
    Pair pair;
    std::string relay;            // Its address.
    std::optional<int32_t> host;  // Its number, where it is a member.
    net::CircuitId circuit{};
    bool may_punch = true;
  };
  /// How two members reach each other, where it is not the direct way.
  struct Detour {
    net::Way way = net::Way::kDirect;
    std::string relay;  // The name of that where they met.
  };

  /// Circuits are numbered and made from `secret`: who does not know it cannot tell the next one.
  explicit Meetings(const Digest& secret) : secret_(secret) {}

  /// Why it is not taken; empty where it is. One of the same name that was there is no more, and
  /// its connection is returned by `replaced`.
  std::string relay_came(Connection connection, const std::string& name, const std::string& address,
                         std::optional<Connection>& replaced);
  /// The name of the relay whose connection that was.
  std::optional<std::string> relay_went(Connection connection);
  bool is_relay(Connection connection) const { return relays_.contains(connection); }
  std::vector<Connection> relays() const;
  std::vector<RelayStatus> status() const;

  /// They cannot reach each other. `is_mistrusted`: they may, but what is large does not get
  /// through; they are to meet for that.
  void broke(const Pair& pair, Time now, bool is_mistrusted = false);
  /// They do, that way.
  void stands(const Pair& pair, net::Way way);
  /// The member is none any more, or another process.
  void forget(int32_t number);
  void forget_members();

  /// Whom to tell now, of pairs that are both `here`: who is away would not come. They meet at a
  /// relay, where there is one, else at one of `hosts`.
  std::vector<Meeting> take_due(const std::vector<int32_t>& here, const std::vector<Host>& hosts,
                                Time now);
  bool any_wanted() const;
  /// Whether some pair is to be told now, if there is a place.
  bool any_due(Time now) const;
  /// Whether two of these were told to meet, and may yet: rounds wait for them.
  bool are_expected(const std::vector<int32_t>& members, Time now) const;
  /// Nothing where they reach each other directly, or not at all.
  const Detour* detour(const Pair& pair) const;

 private:
  struct Relay {
    std::string name;
    std::string address;
    std::optional<int32_t> host = {};
  };
  struct Wish {
    bool is_wanted = true;  // Else it was, and how often they were told is remembered.
    bool is_new = true;     // They were not told since it broke.
    int64_t num_told = 0;
    Time due{};
    Duration pause = kFirstPause;
    bool is_mistrusted = false;            // The direct way.
    Time waited_until{};                   // By the rounds.
    std::map<std::string, int64_t> tries;  // By the relay's name.
    std::string last;                      // The relay of the last one.
  };
  std::vector<Relay> places_for(const Pair& pair, const std::vector<Host>& hosts) const;
  net::CircuitId next_circuit();

  Digest secret_;
  uint64_t num_circuits_ = 0;
  std::map<Connection, Relay> relays_;
  std::map<Pair, Wish> wishes_;
  std::map<Pair, Detour> detours_;
};

}  // namespace atl::swarm
