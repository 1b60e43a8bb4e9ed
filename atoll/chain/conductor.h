#pragma once
// A gateway's sessions over chains of servers: which route each takes, what is sent to whom, and
// what becomes of a session when a server of its chain is lost, hangs, leaves or makes nonsense. A
// pure state machine: events and the time in, actions out. It knows positions, not values.
//
// A lost server is replaced alone: others take its layers, and whoever sent to it sends them again
// all that it made. What comes twice is passed over by who has it, so that nobody needs to know
// how far the others are. Where that is not possible the session begins anew, at its tokens.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/audit.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/peer_watch.h"
#include "atoll/chain/route.h"

namespace atl::chain {

struct ConductorOptions {
  uint64_t gateway = 0;  // Random.
  int32_t num_layers = 0;
  std::string digest;          // Of the model: servers of others are passed over.
  bool needs_head = false;     // The first and the last server of a chain have to have one.
  int64_t chunk_tokens = 256;  // Of a text that is read, in one message.
  int64_t max_sessions = 64;   // With a chain at once; more wait.
  /// How long a session that has lost its chain, or gets no further, is kept up, and one that never
  /// had a chain.
  Duration patience = std::chrono::minutes(2);
  Duration first_patience = std::chrono::seconds(3);
  /// Since a layer has lost all of its servers: others are about to load it.
  Duration gap_patience = std::chrono::seconds(30);
  Duration memory_patience = std::chrono::minutes(2);  // For room for its keys and values.
  /// Of the tokens that pass each server, so large a part is recomputed (audit.h). 0: none.
  double audit_fraction = 0;
  uint64_t audit_seed = 0;  // A secret: which texts, and how far.
  /// Also of texts that began rounded, with the keys and values that their servers had.
  bool audits_rounded = false;
  /// Keys and values of texts' chunks, of so many tokens each, are kept (kv/chunk.h): for texts
  /// that begin as they do, and for servers that take a place. 0: none are.
  int64_t kept_tokens = 0;
};

/// Not thread-safe. Call take_actions() after each event, and do them in order.
class Conductor {
 public:
  using Key = uint64_t;  // A text, whatever becomes of its sessions.
  static constexpr Duration kTick = std::chrono::milliseconds(50);
  /// Tokens: fewer say little, unless a text has no more.
  static constexpr int64_t kAuditedAtLeast = 16;
  /// Tokens: of fewer that are the same nothing is shared.
  static constexpr int64_t kLeastShared = 32;

  struct Connect {
    std::string address;
  };
  struct HangUp {
    std::string address;
  };
  struct Say {
    std::string address;
    Message message;
  };
  /// The tokens from work.rows.begin to before `end` are the rows of that message.
  struct Feed {
    Key key = 0;
    std::string address;
    Work work;
    int64_t end = 0;
    bool is_first = false;  // Nothing of the text has been answered, and these are its first rows.
    int64_t num_rounded = 0;  // Of the tokens before them, whose keys or values were rounded.
  };
  /// It cannot go on; it is forgotten here.
  struct Refuse {
    Key key = 0;
    std::string reason;
    bool is_full = false;  // Only for want of room: later it may.
  };
  /// The message is to have the text's chunks from its first one to before number `end`.
  struct KeepChunks {
    Key key = 0;
    std::string address;
    Keep message;
    uint32_t end = 0;
  };
  struct RestoreChunks {
    Key key = 0;
    std::string address;
    Restore message;
    uint32_t end = 0;
  };
  /// What the text's first tokens are, and what came of them, is set aside for an audit.
  struct SetAside {
    Key key = 0;
    uint64_t session = 0;  // Of which rows have come.
    uint64_t number = 0;   // The audit's.
    int64_t end = 0;
    /// Where it began rounded: as many of its first tokens are not recomputed, and at which levels
    /// each server of its chain has had them (Restored::levels).
    int64_t num_rounded = 0;
    std::vector<std::vector<uint8_t>> levels = {};
  };
  /// With what was set aside, and what is known of it now; recomputed() is to follow.
  struct Recompute {
    uint64_t number = 0;
    std::vector<Hop> hops;
    std::vector<Testimony> said;
  };
  /// Nothing comes of an audit.
  struct Drop {
    uint64_t number = 0;
  };
  /// What was kept of texts is to be found by nobody any more: some of it may be wrong.
  struct ForgetKept {};
  /// What rests is not there any more.
  struct Gone {
    Key key = 0;
  };
  /// That server is not used any more; the coordinator is to know, and so is the server.
  struct Accuse {
    std::string address;
    std::string server;
    std::string reason;
  };
  using Action = std::variant<Connect, HangUp, Say, Feed, Refuse, SetAside, Recompute, Drop, Gone,
                              Accuse, KeepChunks, RestoreChunks, ForgetKept>;

  /// A text, as its owner knows it.
  struct Text {
    int64_t num_tokens = 0;   // That there are,
    int64_t num_guessed = 0;  // of which the last ones are guesses.
    int64_t wanted_from = 0;  // Of earlier tokens nothing is wanted.
    int64_t num_to_come = 1;  // Tokens, about: for the choice of a route.
    bool may_skip = false;    // What was read of it before need not be read again.
    /// What was kept of it may come rounded where to the bit it would take longer than this.
    std::optional<Duration> round_after = {};
    uint64_t adapter = 0;  // By which it is read (Work::adapter).
    /// A text that begins with as many tokens of this one: they need not be read twice.
    Key shares_with = 0;  // 0: none.
    int64_t num_shared = 0;
  };
  /// Rows that were not known: from this position on those of the message are for `key`.
  struct Arrived {
    Key key = 0;
    int64_t begin = 0;
    uint64_t session = 0;  // Another number than before: the text has begun anew.
  };

  explicit Conductor(ConductorOptions options) : options_(options) {}

  // ---- What its owner wants.
  void add(Key key, const Text& text, Time now);
  /// It has changed from this token on; those before it are as they were.
  void change(Key key, const Text& text, int64_t num_same);
  void remove(Key key);
  /// It is over, and its servers are to keep it, for others that begin as it does: they may name it
  /// as what they share with. Returns how many positions are kept; with 0 it is removed. Gone is to
  /// follow.
  int64_t rest(Key key, Time now);
  /// Nothing of it is kept any more, nor shared. Of one that rests Gone follows.
  void forget(Key key);

  // ---- What is heard.
  /// All servers of this model that the coordinator knows.
  void servers(const std::vector<Lease>& leases, Time now);
  void greeted(const std::string& address, const Greeted& message, Time now);
  /// The connection is gone, or was refused.
  void lost(const std::string& address, const std::string& reason, Time now);
  std::optional<Arrived> output(const std::string& address, const Output& message, Time now);
  void trouble(const std::string& address, const Trouble& message, Time now);
  /// What the last server of its chain sends is not finite.
  void distrust(Key key, Time now);
  void pong(const std::string& address, const Pong& message, Time now);
  void testimony(const std::string& address, const Testimony& message, Time now);
  void restored(const std::string& address, const Restored& message, Time now);
  void recomputed(const Recomputed& found, Time now);
  /// That adapter is on its way to that server: its texts do not stand still.
  void hold(const std::string& address, uint64_t adapter, Time now);
  /// Call it every kTick.
  void tick(Time now);

  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  int64_t num_waiting() const;
  int64_t num_sessions() const { return static_cast<int64_t>(sessions_.size()); }
  /// Why chains were changed, and how often: "lost", "hung", "damaged", "moved",
  /// "cut" (from the server before it), "anew".
  const std::map<std::string, int64_t>& recoveries() const { return recoveries_; }
  int64_t num_audited() const { return num_audited_; }  // Tokens.
  /// Servers that do not compute what their model says, and why that is known; by name.
  const std::map<std::string, std::string>& liars() const { return liars_; }

 private:
  struct Server {
    Lease lease;
    bool is_listed = false;  // By the coordinator, and it takes sessions.
    Time leaves_until{};     // It has said that its sessions are to go elsewhere.
    bool is_called = false;
    bool is_ready = false;
    Time greeted{};
    Time retry_at{};
    Duration pause{};
    Time bad_until{};  // It made nonsense.
    Duration bad_pause{};
    PeerWatch watch;
    bool hangs = false;
    Time hangs_since{};
    int32_t num_sessions = 0;  // Of this gateway.
    double to_audit = 0;       // Tokens.
    int num_evasions = 0;      // Audits without its word, one after another.
  };
  /// Servers that are asked what of a text they have, before it goes on.
  struct Restoring {
    bool begins = false;  // All of its chain; else those that take a place.
    bool may_round = false;
    std::map<std::string, std::optional<Restored>> found;  // By server, once it has said.
    std::vector<std::pair<size_t, size_t>> runs;           // Of hops: from, to before.
    std::vector<size_t> resenders;                         // Hops whose next one is new.
    Time until{};
  };
  /// What a server of its chain was told to keep.
  struct KeptBy {
    uint32_t num_chunks = 0;
    std::string neighbour;
  };
  struct Session {
    Text text;
    uint64_t number = 0;
    uint64_t shares_with = 0;  // The number of the session with which it shares its beginning.
    std::vector<Hop> hops;     // Empty: none yet.
    bool is_broken = false;    // Some of its servers are to be replaced.
    bool is_mixed = false;     // Some of it was made by servers that are not in its chain now.
    int64_t num_rounded = 0;   // That it began with rounded: it is for nobody else, too.
    /// Then, as long as it can be audited: of each hop, at which levels it has had that.
    std::vector<std::vector<uint8_t>> levels;
    bool is_private = false;  // Nothing of it is for others, or kept.
    uint32_t epoch = 0;
    uint32_t branch = 0;
    int64_t num_fed = 0;
    int64_t num_done = 0;  // Read by all of the chain.
    Time since{};          // Without a chain, or waiting for rows.
    Time progressed{};     // A token has come, or more of its text was read than ever.
    int64_t most_done = 0;
    Time retry_at{};
    Duration pause{};
    bool had_chain = false;
    bool lacks_memory = false;
    std::optional<Restoring> restoring;
    bool may_restore = true;
    std::map<std::string, KeptBy> kept_by;  // By server of its chain.
    std::vector<std::string> holders;       // Others that have chunks of it, the last one first.
    /// One of its servers says that it does not reach the next; since when.
    std::optional<std::pair<std::string, Time>> cut_behind;

    bool is_for_others() const { return !is_private && num_rounded == 0; }
  };
  using Sessions = std::map<Key, Session>;

  static constexpr double kCutDelay = 1e3;  // Taken only where there is no other way.

  static void lengthen(Duration& pause, Duration first, Duration longest);
  bool is_usable(const Server& server, Time now) const;
  bool is_usable(const std::string& address, Time now) const;
  bool leaves(const std::string& address, Time now) const;
  std::vector<Candidate> candidates(int64_t num_positions, Time now) const;
  double delay(const std::string& from, const std::string& to, Time now) const;
  void call(const std::string& address, Server& server);
  /// Those sessions with that server get others in its place.
  void replace(const std::string& address, const char* kind, Time now);
  void replace_in(Key key, Session& session, const std::string& address, const char* kind,
                  Time now);
  /// Those that others can take go there; it serves the rest on.
  void move_from(const std::string& address, Time now);
  bool can_move(const Session& session, const std::string& address, Time now) const;
  void repair(Key key, Session& session, Time now);
  void blame(const std::string& address, Time now);
  void begin_anew(Session& session, Time now);
  void say_forget(const std::string& address, const Session& session);
  void let_go(Session& session);
  void give_room();
  void find_chains(Time now);
  RouteQuery whole_query(const Session& session, Time now) const;
  bool find_chain(Key key, Session& session, Time now);
  /// Another session that is to share its beginning, if there is one and it has a chain.
  const Session* sharer(const Session& session, Time now) const;
  void begin(Key key, Session& session, std::vector<Hop> hops, Time now);
  void set_hops(Session& session, std::vector<Hop> hops);
  void feed(Key key, Session& session);
  void end_rest(Key key);
  Sessions::iterator find_rest(uint64_t session);
  void trouble_of_rest(const std::string& address, const Trouble& message, Time now);
  /// Those that the server has, or also those of which servers that were replaced made parts.
  void end_rests_of(const std::string& address, bool or_mixed = false);
  void watch_rests(Time now);
  int64_t whole_chunks(int64_t num_positions) const;
  void keep_chunks(Key key, Session& session, Time now);
  std::string neighbour_for(const Session& session, size_t hop, Time now) const;
  Restore& ask_for(Key key, Session& session, size_t hop, int64_t num_positions,
                   std::vector<std::string> holders, double to_read);
  void note_levels(Session& session, const Restoring& done) const;
  bool restore_beginning(Key key, Session& session, Time now);
  void restore_places(Key key, Session& session, std::vector<std::pair<size_t, size_t>> runs,
                      std::vector<size_t> resenders, Time now);
  double seconds_to_read(const Session& session, const std::pair<size_t, size_t>& run,
                         int64_t num_positions) const;
  double said_to_read(const Session& session, const std::pair<size_t, size_t>& run,
                      int64_t num_positions) const;
  void note_reading(const Session& session, int64_t end, Time now);
  double seconds_to_restore(const Hop& hop, const std::vector<std::string>& holders,
                            int64_t num_positions) const;
  void end_restoring(Key key, Session& session, Time now);
  void resend(Session& session, const std::vector<size_t>& resenders);
  void watch_restores(Time now);
  void forget_kept();
  void watch_servers(Time now);
  void watch_sessions(Time now);
  void cut_link(Key key, Session& session, Time now);
  bool is_full_for(const Session& session, Time now) const;
  bool fits_nowhere(const Session& session, Time now) const;
  Duration patience_for(const Session& session, Time now) const;
  std::string reason_of(const Session& session, Time now) const;
  void count_served(const Session& session, int64_t num_tokens);
  void consider_audit(Key key, const Session& session, int64_t least, Time now);
  bool may_audit(const Session& session) const;
  void forget_levels(uint64_t audit);
  void drop_audit(uint64_t number);
  void drop_audits_of(uint64_t session);
  void begin_anew_of(uint64_t session, Time now);
  void evade(uint64_t number, size_t hop, Time now);
  void excuse(const std::string& address, uint64_t session, Time now);
  void watch_audits(Time now);
  void contradict(const Audit& audit, size_t hop, Time now);
  void convict(const std::string& address, const std::string& name, const std::string& reason,
               Time now);
  Sessions::iterator find(const SessionId& id);

  const ConductorOptions options_;
  std::map<std::string, Server> servers_;  // By address.
  std::set<std::string> other_types_;      // In which servers of these files compute.
  Sessions sessions_;
  Sessions resting_;              // `since` they were over, or used.
  std::map<uint64_t, Key> keys_;  // Of session numbers.
  uint64_t last_number_ = 0;
  std::map<std::pair<std::string, std::string>, Time> cut_links_;  // Until when they are avoided.
  std::map<std::string, int64_t> recoveries_;
  std::map<uint64_t, Audit> audits_;  // By number.
  uint64_t last_audit_ = 0;
  int64_t num_audited_ = 0;
  std::map<std::string, std::set<std::string>> contradicted_;  // By each server, names.
  std::map<std::string, std::string> liars_;
  Time last_tick_{};
  std::optional<Time> last_whole_;  // When all layers were served.
  /// What reading took, of what servers say, for each kSlownessTokens of a text's positions.
  std::vector<double> slowness_;
  std::vector<Action> actions_;
};

}  // namespace atl::chain
