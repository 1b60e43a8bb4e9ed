#pragma once
// Everything that coordinator and members say to each other, as plain structs. wire.h turns them
// into bytes and back. Every message carries a Header; what does not fit it is refused as stale.
//
//   island -> coordinator  Hello, Ready, Begin, Prepared, Heartbeat, Trouble, StopRequest, Leave
//   coordinator -> island  Welcome, Refused, Start, OpenAttempt, Commit, Alive, Goodbye, RunEnded
//   island -> island       PeerHello, Part (bulk plane; no tensor passes through the coordinator)
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"

namespace atl::swarm {

/// Raised when a message changes its layout. Hello and Refused keep theirs for ever, so that two
/// versions can still tell each other that they differ.
constexpr uint16_t kProtocolVersion = 4;

/// What a message is about. `round` and `attempt` are -1 where none is meant.
struct Header {
  std::string run;  // Empty only in Hello and in a Refused that answers it.
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

/// The island is able to train. Facts that must be equal everywhere, and its checkpoints.
struct Ready {
  Header header;
  std::map<std::string, std::string> facts;
  std::map<int64_t, std::string> checkpoints;  // Step -> digest of the global parameters.
};

struct Peer {
  std::string name;
  std::string address;

  bool operator==(const Peer&) const = default;
};

/// The run begins. The place in `members`, sorted by name, is a member's number.
struct Start {
  Header header;
  uint64_t view = 0;
  int64_t start_step = 0;  // The newest checkpoint that all hold; 0: from the beginning.
  std::vector<Peer> members;
};

/// This member's snapshot for a round is taken.
struct Begin {
  Header header;
  int32_t fragment = 0;
  int64_t step = 0;
  int64_t weight = 0;          // Tokens since the fragment's last round; 0: this island abstains.
  int64_t count = 0;           // Values in the fragment,
  int64_t segment_values = 0;  // exchanged and summed in segments of so many.
  std::string exchange;        // How values travel ("bf16 gather"): must be equal on all islands.
};

/// All members that are here have begun: exchange. An attempt may be followed by another, of fewer
/// members. A member's number is its place in Start; in an attempt the members have one weight and
/// one share each, by rank: their place in its list.
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

/// The member holds the result of the round in a spare buffer: it neither applies nor drops it
/// until the coordinator decides.
struct Prepared {
  Header header;
  Digest digest{};
};

/// All digests are equal: apply. With `stop`, checkpoint and end after it.
struct Commit {
  Header header;
  Digest digest{};
  bool stop = false;
};

/// A sign of life with this island's progress.
struct Heartbeat {
  Header header;
  int64_t step = 0;
  double loss = 0;
  double tokens_per_s = 0;
  uint64_t moved = 0;  // Bytes of parts sent and received, and units of work done, so far.
};

/// The coordinator's sign of life.
struct Alive {
  Header header;
  uint64_t quiet_ms = 0;  // Since the coordinator last heard that any island had moved something.
};

/// An island cannot go on: an exchange failed, a snapshot is not finite. Names who and why.
struct Trouble {
  Header header;
  std::string reason;
};

/// The island's user pressed Ctrl-C: the next commit tells all to stop.
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

/// The run is over for everybody: who was lost and why, and how to resume.
struct RunEnded {
  Header header;
  std::string reason;
};

/// First word on a bulk connection.
struct PeerHello {
  Header header;
  uint64_t view = 0;
  int32_t number = 0;  // Of the member that connects.
};

enum class PartKind : uint8_t { kContribution, kMean };

/// A chunk of an encoded segment: a member's contribution on its way to those who sum it, or the
/// mean on its way to everybody. A contribution is good for every attempt of its round, a mean for
/// its own.
struct Part {
  Header header;
  PartKind kind = PartKind::kContribution;
  int32_t sender = 0;   // Number.
  int32_t segment = 0;  // Within the fragment.
  uint64_t offset = 0;  // Bytes, within the encoded segment.
  uint64_t total = 0;   // Bytes of the encoded segment; the same in all its chunks.
  Bytes data;
};

using Message =
    std::variant<Hello, Welcome, Refused, Ready, Start, Begin, OpenAttempt, Prepared, Commit,
                 Heartbeat, Alive, Trouble, StopRequest, Leave, Goodbye, RunEnded, PeerHello, Part>;

}  // namespace atl::swarm
