#pragma once
// Connections to the other members, one to each, and what waits to be sent over them: transfers of
// rounds first, and beside them, as a share of the line (lending_share.h), what was lent.
//
// Each pair has one that dials, again and again, with growing pauses. Where it has not come through
// for a while the other dials as well: one may be behind a router that lets nobody in. A link that
// breaks loses what was to go over it: whoever posted that posts it again. The coordinator hears of
// it a little later, unless it has dropped the member meanwhile, and again when it is back.
//
// Invariants: over one connection frames go in the order posted, and a transfer as one chunk behind
// the other; nothing goes over a link that is lost. What a link has of rounds and has not sent is
// `waiting_bytes`.
//
// It owns no thread, and calls the transport from within the calls to it. Not thread-safe.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/collective/backoff.h"
#include "atoll/collective/lending_share.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

/// A blob, or bytes [sent, end) of it, on its way to one member.
struct Transfer {
  swarm::Part part;
  std::shared_ptr<const Bytes> blob;
  size_t sent = 0;
  size_t end = 0;
  size_t base = 0;  // Where the blob begins within what the part is of.
};

/// To one other member.
struct Link {
  std::string address;
  bool is_ours_to_dial = false;
  net::ConnectionId connection = 0;  // 0: none.
  bool opened = false;
  net::Way way = net::Way::kDirect;  // As which it was opened.
  Time opened_at{};
  bool full = false;
  std::string lost;           // Why there is none; empty while it stands or was not there yet.
  Time verdict_due{};         // When the coordinator hears of it, if it has not dropped the member.
  bool was_reported = false;  // That it was lost, and not yet that it stands again.
  Backoff redial;
  std::deque<Transfer> transfers;  // Of rounds.
  std::deque<Transfer> lent;       // What was fetched.
  size_t waiting_bytes = 0;        // Of the transfers.

  bool is_lost() const { return !lost.empty(); }
  bool is_open() const { return opened && lost.empty(); }
};

class Links {
 public:
  /// Encoded and waiting for one member, beyond which no more should be: enough that the line never
  /// runs dry, and little memory.
  static constexpr size_t kMaxWaitingBytes = size_t{4} << 20;
  /// A member that dies is lost to the coordinator too, which can say so better: it gets this long.
  static constexpr Duration kVerdictGrace = std::chrono::milliseconds(250);
  /// How long the one that dials is waited for by the other.
  static constexpr Duration kTheirTurn = std::chrono::seconds(4);

  /// A frame went out, of something of that round.
  using OnSent = std::function<void(int64_t round, size_t frame_bytes, Time now)>;
  struct Changes {
    std::vector<int32_t> gone;     // Members no more.
    std::vector<int32_t> to_dial;  // New ones.
  };

  Links(net::Transport& transport, OnSent on_sent)
      : transport_(transport), on_sent_(std::move(on_sent)) {}

  const std::map<int32_t, Link>& all() const { return links_; }
  bool contains(int32_t number) const { return links_.contains(number); }
  /// Null: no such member.
  const Link* find(int32_t number) const;
  std::optional<int32_t> number_of(net::ConnectionId connection) const;
  /// Bytes per second, of those that are known; 0: none is.
  double mean_rate() const;
  /// Whether more may be encoded, to be sent.
  bool has_room() const;
  bool lends() const;

  // Members and connections.

  /// Who the members are; `own` is this one, which dials those of lower number.
  Changes view(const std::vector<swarm::Peer>& members, int32_t own, Time now);
  /// Connects, and says hello. False: the connection was closed at once; drop() it.
  [[nodiscard]] bool dial(int32_t number, const swarm::PeerHello& hello);
  /// The same, by meeting the member; it may be the one that calls, and then says hello.
  [[nodiscard]] bool meet(int32_t number, const net::Meeting& meeting,
                          const swarm::PeerHello& hello);
  /// A connection that was dialled stands. False: it is of no member.
  bool opened(net::ConnectionId connection, net::Way way, Time now);
  /// A connection that the member has made.
  void accept(int32_t number, net::ConnectionId connection, net::Way way, Time now);
  /// It is gone, by itself. Whose it was; drop() that.
  std::optional<int32_t> take_lost(net::ConnectionId connection);
  void drop(int32_t number, const std::string& reason, Time now);
  void close_all();

  /// It is to be dialled now.
  bool is_dial_due(int32_t number, Time now) const;
  /// Why the link is lost, when the coordinator is to hear of it: once for each loss.
  std::optional<std::string> take_verdict(int32_t number, Time now);
  /// It was lost, which the coordinator was told, and stands again: it is to hear of that, once.
  bool take_return(int32_t number);
  /// When is_dial_due() or take_verdict() may have something to say.
  Time due() const;

  // What is sent.

  /// Of a round, to a member whose link is not lost.
  void post(int32_t number, Transfer transfer, Time now);
  /// What it has asked for.
  void lend(int32_t number, Transfer transfer, Time now);
  /// Transfers of the round that are void.
  void drop_transfers(int64_t round, const std::function<bool(const Transfer&)>& is_void);
  /// There is room again.
  void writable(net::ConnectionId connection, Time now);
  /// Sends what may go to the member now, and lends.
  void pump(int32_t number, Time now);
  void lend_some(Time now);

 private:
  /// A connection that this side makes.
  bool begin(Link& link, net::ConnectionId connection, const swarm::PeerHello& hello);
  /// False: nothing is to be lent, or may be now.
  bool lend_chunk(Link& link, bool rounds_wait, Time now);
  /// One chunk of the first transfer. False if the connection takes no more.
  bool send_chunk(Link& link, std::deque<Transfer>& queue, Time now);

  net::Transport& transport_;
  OnSent on_sent_;
  std::map<int32_t, Link> links_;  // By number.
  LendingShare lending_;
  int32_t last_lent_to_ = -1;
};

}  // namespace atl::collective
