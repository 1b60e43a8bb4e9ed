#pragma once
// Everything that coordinator and members say to each other, as plain structs. wire.h turns them
// into bytes and back. Every message carries a Header; what does not fit it is refused as stale.
//
//   island -> coordinator  Hello, Ready, Resume, Begin, Prepared, Unusable, CaughtUp, Heartbeat,
//                          LinkState, Trouble, StopRequest, Leave; and from anybody Probe
//   relay -> coordinator   RelayHello
//   coordinator -> island  Welcome, Refused, Start, Resumed, View, OpenAttempt, Commit, Lease,
//                          Reinstated, Due, Alive, AddressTried, Meet,
//                          PassOn, Goodbye, RunEnded, ProbeReply
//   coordinator -> relay   Refused, View (of no members), RunEnded
//   island -> island       PeerHello, Part, Fetch, NotHeld
//
// The last are the bulk plane: no tensor passes through the coordinator.
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/leases.h"

namespace atl::swarm {

/// Raised when a message changes its layout or its meaning. Hello and Refused keep their layout for
/// ever, so that two versions can still tell each other that they differ.
constexpr uint16_t kProtocolVersion = 14;

/// The fragment of rounds that are about no part of the model: measurements.
constexpr int32_t kNoFragment = int32_t{1} << 20;

/// What a message is about. `round` and `attempt` are -1 where none is meant.
struct Header {
  /// The run's id. In Hello the name of the run that the island asks for; empty: the only one that
  /// the coordinator has. Empty in a Refused from before a run has heard of the island.
  std::string run;
  uint64_t term = 0;
  int64_t round = -1;
  int32_t attempt = -1;

  bool operator==(const Header&) const = default;
};

/// First word of an island on its control connection.
struct Hello {
  Header header;
  uint16_t protocol = kProtocolVersion;
  std::string version;                          // Of the program: "0.1.0".
  std::string name;                             // Of the island; unique within the run.
  std::string address;                          // HOST:PORT where other islands reach it.
  std::map<std::string, std::string> settings;  // What its user asked for: name -> text.
};

/// The island is admitted; `config` is the text of the run's settings.
struct Welcome {
  Header header;
  std::string config;
};

/// The island is not admitted, or no longer: the sentence names the field. The connection ends.
struct Refused {
  Header header;
  std::string reason;
};

/// What a process that came to its end was, and what is on disk of all that it had: so much that
/// the next one can compute the rest again.
struct Former {
  int32_t number = -1;          // Of the member; -1: it was none, or too little is on disk.
  uint64_t term = 0;            // In which it became one.
  int64_t num_leased = 0;       // Units that it has trained on, ever.
  std::vector<int64_t> rounds;  // By fragment: the newest whose result is on disk; -1: none.

  bool operator==(const Former&) const = default;
};

/// The island is able to train. Facts that must be equal everywhere, and its checkpoints.
struct Ready {
  Header header;
  std::map<std::string, std::string> facts;
  std::map<int64_t, std::string> checkpoints;  // Step -> digest of the global parameters.
  Former former;
};

/// A member. Whoever joins gets a number that nobody had before, also when it comes back without
/// its state.
struct Peer {
  int32_t number = 0;
  std::string name;
  std::string address;

  bool operator==(const Peer&) const = default;
};

/// The newest committed state of a fragment.
struct Held {
  int32_t fragment = 0;
  int64_t round = 0;
  int64_t step = 0;
  Digest digest{};

  bool operator==(const Held&) const = default;
};

/// This island is a member from here on: the run begins, or it joins one that is under way.
struct Start {
  Header header;
  uint64_t view = 0;
  int32_t number = 0;         // This member's.
  int64_t start_step = 0;     // The checkpoint that the run began with; 0: from the beginning.
  int64_t step = 0;           // Where the run stands.
  uint64_t num_commits = 0;   // That the run has had.
  bool joins = false;         // The state comes from the others; rounds go on without this one.
  bool returns = false;       // It is the member that it was: it goes on from what it has on disk,
                              // and rounds wait for it. The commits from `num_commits` on follow.
  std::vector<Peer> members;  // Numbers rise.
  std::vector<Held> held;     // What to get before training, where `joins`; what is here already,
                              // where `returns`.
  std::vector<Units> units;   // The rows to train on first; behind those that `former` had.
  int64_t num_replicas = 0;   // That a global batch is cut into: a unit is one of the pieces.
  int64_t report_every = 0;   // Units, after which to send a Heartbeat; 0: by time alone.
};

/// Who is a member now.
struct View {
  Header header;
  uint64_t view = 0;
  std::vector<Peer> members;  // Numbers rise.
  Bytes revocations;  // The authority's signed list (identity/revocation.h); empty: there is none.
};

/// A member whose connection broke, or whose coordinator did, is back, with all that it had.
struct Resume {
  Header header;  // Of the term that it knows.
  int32_t number = 0;
  std::string name;
  std::string address;
  uint64_t num_commits = 0;  // That it has heard of.
  int64_t first_round = -1;  // From which on the rounds wait for it; -1: it was behind.
  int64_t num_leased = 0;    // Units that it was given, ever.
};

/// It is a member still. The commits that it has not heard of follow.
struct Resumed {
  Header header;
  uint64_t view = 0;
  std::vector<Peer> members;
  std::vector<Units> units;  // Rows that it was given and has not heard of.
};

/// This member's snapshot for a round is taken. Said again to a coordinator that has come back;
/// the header's attempt is the last that the member knows of.
struct Begin {
  Header header;
  int32_t fragment = 0;
  int64_t step = 0;
  int64_t weight = 0;          // Tokens since the fragment's last round; 0: this island abstains.
  int64_t count = 0;           // Values in the fragment.
  int64_t segment_values = 0;  // Values of a segment, as which they are exchanged and summed.
  int64_t num_trained = 0;     // Units of its leases that the member had trained on, ever.
  int64_t rate = 0;            // Bytes per second that its connections to other members have lately
                               // carried, on average; 0: not known, or of no matter.
  std::string exchange;        // How values travel ("bf16 gather"): must be equal on all islands.
};

/// All members that are here have begun: exchange. An attempt may be followed by another, of fewer
/// members, or with weight 0 for one whose contribution is left out. In an attempt the members have
/// one weight and one share each, by rank: their place in its list.
struct OpenAttempt {
  Header header;
  uint64_t view = 0;
  int32_t fragment = 0;
  int64_t count = 0;
  int64_t segment_values = 0;  // Of each segment but the last. The same in all attempts of a round.
  std::vector<int32_t> members;  // Numbers, rising.
  std::vector<int64_t> weights;
  std::vector<int64_t> shares;  // Segments that each member sums, one member's after another's.
};

/// Of the contributions in the segments that are one member's share: those of all members add up
/// to what they are of the whole. 0 for who abstains.
struct Measures {
  std::vector<double> squares;  // By rank: the sum of squares, from 0 to 1e100.
  /// Over a sample of the values: the sum of products of each pair of ranks (i, j), j <= i, in the
  /// order (0, 0), (1, 0), (1, 1), (2, 0), ...; empty where num_products() in rules.h says so.
  std::vector<double> products;
};

/// The member holds the result of the round in a spare buffer: it neither applies nor drops it
/// until the coordinator decides.
struct Prepared {
  Header header;
  Digest digest{};
  Measures measures;
};

/// All digests are equal: apply. With `stop`, checkpoint and end after it. Everybody hears of every
/// commit, in one order. A member that had no part in it, or no result yet, fetches the result.
struct Commit {
  Header header;
  uint64_t index = 0;  // The run's commits are numbered from 0 in the order of their decisions.
  Held held;           // What the fragment is from here on.
  int64_t count = 0;
  int64_t segment_values = 0;
  std::vector<int32_t> members;  // Numbers, rising.
  std::vector<int64_t> weights;  // By rank.
  bool stop = false;
};

/// More rows to train on, behind those that the member has.
struct Lease {
  Header header;
  std::vector<Units> units;
};

/// A member that is behind has fetched the results of all commits that it knows of.
struct CaughtUp {
  Header header;
  uint64_t num_commits = 0;  // All that it has heard of.
};

/// From `first_round` on the rounds wait for this member again.
struct Reinstated {
  Header header;
  int64_t first_round = 0;
  int64_t step = 0;  // That the others are at: it goes on from there, so that nobody waits for it.
};

/// Elastic pace: the islands have trained on enough for the next round. Begin it after the step
/// that is under way.
struct Due {
  Header header;
  int32_t fragment = 0;
  int64_t base = -1;  // The last committed round, of any fragment, whose result comes first.
  int64_t step = 0;   // Where the run stands before it; for Begin.
};

/// A sign of life with this island's progress.
struct Heartbeat {
  Header header;
  int64_t step = 0;
  double loss = 0;
  double tokens_per_s = 0;
  int64_t num_trained = 0;  // Units of its leases, ever.
  uint64_t moved = 0;       // Bytes of parts sent and received, and units of work done, so far.
  uint64_t caught_up = 0;   // Commits whose results it has, as CaughtUp says it.
};

/// The coordinator's sign of life.
struct Alive {
  Header header;
  uint64_t quiet_ms = 0;  // Since the coordinator last heard that any island had moved something.
  std::string waits;      // Why no round goes on, for people; empty: they do.
};

/// Whether a member can exchange parts with another.
struct LinkState {
  Header header;
  int32_t other = 0;  // Number.
  bool up = false;
  std::string reason;
  net::Way way = net::Way::kDirect;  // Where it is up.
};

/// First word of a relay on its control connection: members may meet there.
struct RelayHello {
  Header header;  // As in Hello.
  uint16_t protocol = kProtocolVersion;
  std::string version;
  std::string name;
  std::string address;  // HOST:PORT where members reach it.
};

/// The coordinator has called this member at the address that others are told.
struct AddressTried {
  Header header;
  std::string address;
  std::string fault;  // Why that failed; empty: it did not.
};

/// Two members cannot reach each other, and each is told where to meet the other.
struct Meet {
  Header header;
  int32_t other = 0;  // Number. Of the two the higher one calls.
  std::string relay;  // HOST:PORT
  net::CircuitId circuit{};
  bool may_punch = true;  // As net::Meeting has it.
};

/// Two others are told to meet at this member, in that circuit.
struct PassOn {
  Header header;
  net::CircuitId circuit{};
};

/// An exchange failed, a snapshot is not finite: names who and why.
struct Trouble {
  Header header;
  int32_t culprit = -1;  // The member that broke the protocol; -1: this island cannot go on.
  std::string reason;
};

/// The island's user pressed Ctrl-C: the next commit tells all to stop (elastic: the one
/// that has all fragments).
struct StopRequest {
  Header header;
};

/// The island is done; losing it is no fault from here on. Answered by Goodbye.
struct Leave {
  Header header;
};

struct Goodbye {
  Header header;
};

/// The run is over for everybody: who was lost and why, and how to resume. `complete`: its last
/// step is committed, and who holds that lacks nothing.
struct RunEnded {
  Header header;
  std::string reason;
  bool complete = false;
};

/// First word on a bulk connection.
struct PeerHello {
  Header header;
  uint64_t view = 0;
  int32_t number = 0;  // Of the member that connects.
  int32_t to = 0;      // Of the one that it means: another may be at its address by now.
};

enum class PartKind : uint8_t { kContribution, kMean, kState, kResult };

/// A chunk of an encoded segment: a member's contribution on its way to those who sum it, or the
/// mean on its way to everybody. A contribution is good for every attempt of its round, a mean for
/// its own. Or a chunk of what was asked for by Fetch.
struct Part {
  Header header;
  PartKind kind = PartKind::kContribution;
  int32_t sender = 0;    // Number of the member that made it.
  int32_t receiver = 0;  // Number of the member that it is for.
  int32_t segment = 0;   // Within the fragment; of what was fetched the fragment.
  uint64_t offset = 0;   // Bytes, within the encoded segment; of a state within all of it.
  uint64_t total = 0;    // Bytes of the encoded segment; the same in all its chunks.
  Bytes data;
};

/// Asks for bytes [begin, end) of a fragment's state after the header's round (kState), or for the
/// round's result (kResult; all of it). Answered by Parts, or by NotHeld.
struct Fetch {
  Header header;
  PartKind kind = PartKind::kState;
  int32_t fragment = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct NotHeld {
  Header header;
  PartKind kind = PartKind::kState;
  int32_t fragment = 0;
  bool never = false;  // It was held, or passed by: asking again is of no use.
};

/// A contribution that came in this attempt means no finite values: no mean can be made with it.
struct Unusable {
  Header header;
  int32_t contributor = 0;  // Number.
  std::string reason;
};

/// Of a Probe: what it carries, and what it asks for.
constexpr uint64_t kMaxProbeBytes = uint64_t{256} << 10;

/// Somebody who wants to know their line to the coordinator, first and only word there: what it
/// carries counts for the way up, and as many bytes as it asks for for the way down.
struct Probe {
  Header header;
  uint64_t reply_bytes = 0;
  Bytes data;
};

struct ProbeReply {
  Header header;
  Bytes data;
};

using Message =
    std::variant<Hello, Welcome, Refused, Ready, Start, View, Resume, Resumed, Begin, OpenAttempt,
                 Prepared, Commit, Lease, CaughtUp, Reinstated, Due, Heartbeat, Alive, LinkState,
                 Trouble, StopRequest, Leave, Goodbye, RunEnded, PeerHello, Part, Fetch, NotHeld,
                 Unusable, Probe, ProbeReply, RelayHello, AddressTried, Meet, PassOn>;

}  // namespace atl::swarm
