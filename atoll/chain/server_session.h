#pragma once
// One session at one server of its chain: which rows came, which are read, and what was sent on.
// Pure; where keys and values lie, and what the layers make of rows, is the caller's.
//
// Rows may come twice, and from another sender than before: what is known is passed over. What was
// made is kept, so that a server that takes the next one's place can have all of it again, and only
// what was lost is computed anew.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/rows.h"

namespace atl::chain {

/// Guesses behind a text's newest token, at most.
constexpr int64_t kMostAhead = 256;

class ServerSession {
 public:
  explicit ServerSession(SessionId id) : id_(id) {}
  /// One whose first positions, as many, have keys and values that were read elsewhere: what came,
  /// and what was made of it, is not known here.
  ServerSession(SessionId id, Span layers, int64_t num_restored);
  /// One that begins with the first `num_shared` positions of another, which has read them.
  ServerSession(SessionId id, const ServerSession& other, int64_t num_shared);

  const SessionId& id() const { return id_; }
  /// The layers that it wants from this server; none before the first take().
  Span layers() const { return hops_.empty() ? Span{} : hops_.front().layers; }
  const std::vector<Hop>& hops() const { return hops_; }
  uint32_t epoch() const { return epoch_; }
  uint64_t adapter() const { return adapter_; }
  /// Of what came last: what is made goes on as well as that.
  Precision precision() const { return precision_; }

  enum class Taken : uint8_t {
    kGood,
    kGap,    // Rows before these are missing here, and will not come by themselves.
    kOther,  // It was in another precision before.
  };
  [[nodiscard]] Taken take(Work work);
  /// What the next server is to get anew, where the last work named another one than before.
  std::vector<Message> take_again() { return std::exchange(again_, {}); }
  /// Positions that were read. Falls when its gateway goes back in the text.
  int64_t length() const { return length_; }
  int64_t num_unread() const { return arrived_ - length_; }
  /// Something is ordered of the next ones.
  bool has_orders() const { return !unread_.empty() && !unread_.front().orders.empty(); }
  /// Of these the next ones, whose orders have so many bytes together at most; one at least.
  int64_t num_readable(int64_t order_bytes) const;
  int64_t unread_bytes() const;
  /// The next `count` unread rows.
  std::vector<Rows> unread(int64_t count) const;

  /// Of the next rows, before read(): what came and what was made of it, as this server saw it.
  void note(const std::vector<Fingerprint>& received, const std::vector<Fingerprint>& made);
  /// What it has seen of the positions in question, or of fewer where it has not read as many.
  Testimony testify(const Testify& question) const;
  /// That it begins as another one, which has read so many positions by the same layers, more than
  /// this one, and that what came of these need not be computed again. Returns what is to be sent
  /// on; nothing where that is not kept any more.
  std::optional<std::vector<Message>> adopt(const ServerSession& other, int64_t num_shared);
  /// The next ones were read, and this came of them. Returns what is to be sent on, if anything: to
  /// the next server, or to the gateway behind the last one.
  std::optional<Message> read(Rows made);
  /// Others follow from now on. Returns what they are to get, in order; none if it is stale.
  /// Nothing when not all is kept that was made.
  std::optional<std::vector<Message>> reroute(const Reroute& message);
  /// The next hop's address; empty where that is the gateway.
  std::string next() const { return hops_.size() > 1 ? hops_[1].address : std::string(); }

  /// Nothing more is read of it.
  void rest();
  bool rests() const { return rests_; }

  int64_t kept_bytes() const { return kept_bytes_; }
  /// Gives back the memory; the session goes on, but nobody behind it can be replaced from here.
  void stop_keeping();

 private:
  void go_back(int64_t position);
  /// Whether all is kept that the next hop is to get.
  bool can_resend() const;
  /// From there on, or as the next hop is to get it.
  std::vector<Message> kept_from(int64_t begin) const;
  std::optional<Message> sent_on(Rows made) const;
  void keep(const Rows& made);

  SessionId id_;
  uint64_t adapter_ = 0;
  uint64_t shares_with_ = 0;
  int64_t num_shared_ = 0;
  std::vector<Hop> hops_;
  uint32_t epoch_ = 0;
  uint32_t rerouted_ = 0;  // The epoch of the last reroute().
  uint32_t branch_ = 0;
  Precision precision_ = Precision::kFp32;
  int64_t length_ = 0;
  int64_t arrived_ = 0;  // Positions of which rows are here or were read.
  std::deque<Rows> unread_;
  std::deque<Rows> kept_;  // All from this position on.
  int64_t kept_begin_ = 0;
  std::optional<Span> restored_layers_;
  std::vector<Fingerprint> received_;  // Of all positions; of those that were restored, zeros.
  std::vector<Fingerprint> made_;
  std::vector<Message> again_;
  bool keeps_ = true;
  bool rests_ = false;
  int64_t kept_bytes_ = 0;
};

/// Sessions that nobody wants any more: rows that were on their way then, by a route of that epoch
/// or an older one, are not to begin them anew.
class ForgottenSessions {
 public:
  static constexpr size_t kMost = 4096;

  void add(const Forget& message);
  bool has(const SessionId& id, uint32_t epoch) const;

 private:
  std::map<SessionId, uint32_t> epochs_;
  std::deque<SessionId> order_;
};

}  // namespace atl::chain
