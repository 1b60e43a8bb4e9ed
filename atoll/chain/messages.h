#pragma once
// What is said when a model's layers are served by several machines: servers and gateways to the
// coordinator (who serves what), and to each other (a session's activations). A variant of its own:
// who trains never hears of it.
//
// A session is one text that is read. Its gateway embeds the tokens, sends them to the first server
// of a chain, and gets from the last one what the final norm reads. All are numbered by their
// position in the text, so that whoever gets some of them twice passes over what it has, and
// nothing depends on who has sent them. A gateway without embedding and head sends tokens and what
// is to be drawn behind them, and gets what was drawn.
//
// Shapes: T = tokens, C = hidden size.
#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/chain/fingerprint.h"
#include "atoll/decoding/order.h"
#include "atoll/kv/chunk.h"

namespace atl::chain {

constexpr uint16_t kProtocol = 10;

/// The layers from `begin` to before `end`.
struct Span {
  int32_t begin = 0;
  int32_t end = 0;

  int32_t size() const { return end - begin; }
  bool holds(const Span& other) const { return begin <= other.begin && other.end <= end; }
  auto operator<=>(const Span&) const = default;
};

/// `gateway` is random, drawn anew by each process.
struct SessionId {
  uint64_t gateway = 0;
  uint64_t number = 0;

  auto operator<=>(const SessionId&) const = default;
};

/// What one server of a chain does.
struct Hop {
  std::string address;  // HOST:PORT
  Span layers;
  int64_t send_from = 0;  // What it makes of earlier positions nobody waits for.
  /// Keys and values of earlier positions it has had restored: for who does not know the session
  /// yet, what comes begins here.
  int64_t restored = 0;

  bool operator==(const Hop&) const = default;
};

/// How activations lie on the wire: each row (token) is an encoding of its own by the codec of that
/// name (codec/codec.h).
enum class Precision : uint8_t { kFp32, kBf16, kInt8 };
constexpr uint8_t num_values(Precision /*precision*/) { return 3; }

/// Consecutive rows of one text, each for a token at its position, as they lie on the wire: what
/// layers make, or in its place tokens that are not embedded yet, or what has come of orders.
struct Rows {
  int64_t begin = 0;  // The first one's position.
  uint32_t num_tokens = 0;
  Precision precision = Precision::kFp32;  // Of what layers make.
  Bytes rows_TC = {};
  std::vector<int32_t> ids = {};
  std::vector<decoding::Outcome> outcomes = {};
  /// What the head is to make of each; empty: nothing, the gateway has its own.
  std::vector<decoding::Order> orders = {};

  int64_t end() const { return begin + num_tokens; }
};

// ---- Between gateways and servers, and from server to server.

/// First on each connection, from who calls.
struct Greet {
  uint16_t protocol = kProtocol;
  std::string version;  // Of the program, for people.
  std::string model;    // Its digest (Lease::digest): that of the one who is called, or it refuses.
  uint64_t gateway = 0;  // Who calls is that one; 0: a server.
};
/// The answer: this server is there for who greeted it.
struct Greeted {
  Span layers;
};
/// The other answer; the connection ends.
struct Refused {
  std::string reason;
};

/// Rows that the receiver's layers read.
struct Work {
  SessionId session;
  /// Counts the session's changes of route: of two the newer one holds. Rows are good by any.
  uint32_t epoch = 0;
  /// Counts how often its gateway went back in the text. Rows of a newer branch take the place of
  /// all from their position on.
  uint32_t branch = 0;
  /// A session that begins as this one does, at the same servers: what is before `num_shared` is
  /// not read again. 0: none. It counts for who does not know this session yet: where the rows
  /// begin at num_shared, that one has read what is before; where they begin at 0, it is about to.
  uint64_t shares_with = 0;  // Its number, of the same gateway.
  int64_t num_shared = 0;
  /// Its gateway's, by which the text is read; 0: none. A server that lacks it says so (Unadapted).
  uint64_t adapter = 0;
  std::vector<Hop> hops;  // The receiver's, and those behind it. The last one answers the gateway.
  Rows rows;
};
/// What the last layer made, or the head, to the gateway. Without rows: all before them is read.
struct Output {
  SessionId session;
  uint32_t epoch = 0;
  uint32_t branch = 0;
  Rows rows;
};
/// From the gateway: others follow the receiver from now on. It sends them again all that it has
/// made.
struct Reroute {
  SessionId session;
  uint32_t epoch = 0;
  std::vector<Hop> hops;  // The receiver's, and those behind it.
};
/// From the gateway: nobody wants it any more; rows by a route of this epoch or an older one are
/// late. By a newer route the session may come again.
struct Forget {
  SessionId session;
  uint32_t epoch = 0;
};

/// From the gateway: the text is over, and its keys and values are kept as long as there is room:
/// others may begin as it does. What is under way for it is not read any more.
struct Rest {
  SessionId session;
};

enum class Fault : uint8_t {
  kNoMemory,   // No room for its keys and values: later, or elsewhere.
  kNotKept,    // What was sent before is not there any more, or never was: begin anew.
  kNeighbour,  // The server behind this one cannot be reached.
  kDamaged,    // What came from the server before this one is not finite, or of another shape.
  kBroken,     // What this server's layers make is not finite: its weights are damaged.
  kLeaving,    // This server serves other layers from now on, or is shut down.
};
constexpr uint8_t num_values(Fault /*fault*/) { return 6; }
/// To the gateway: why a session does not go on here.
struct Trouble {
  SessionId session;
  uint32_t epoch = 0;  // As far as its sender knows.
  Fault fault = Fault::kNoMemory;
  std::string reason;
};

/// From a gateway to a server that has read the first `end` rows of a session, or had: what was it?
struct Testify {
  SessionId session;
  uint64_t audit = 0;  // Its number.
  int64_t end = 0;
};
/// The answer, from position 0 on. Both empty: that session is not here.
struct Testimony {
  SessionId session;
  uint64_t audit = 0;
  std::vector<Fingerprint> received;  // By this server's first layer.
  std::vector<Fingerprint> made;      // By its last one, before it was encoded for the wire.
};

// ---- Keys and values that are kept (kv/chunk.h).

/// From a gateway: these chunks of a session, of which the first is number `first`, are read, and
/// are to be kept; and a copy of them at another server.
struct Keep {
  SessionId session;
  Digest group{};
  uint32_t first = 0;
  std::vector<kv::Chunk> chunks;
  std::string neighbour;  // HOST:PORT; empty: nowhere else.
};
/// From a gateway: the session is to begin with as many of these chunks, its first ones, as are
/// kept here or by `holders`, who are asked in this order.
struct Restore {
  SessionId session;
  uint32_t epoch = 0;
  Span layers;
  Digest group{};
  std::vector<kv::Chunk> chunks;
  std::vector<std::string> holders;
  /// What other servers have travels rounded as far as it takes for all to be there by then; below
  /// 0: to the bit.
  int32_t round_after_ms = -1;
  int32_t read_ms = -1;  // In which all of it is read anew; below 0: not known.
};
/// The answer: positions before `end` need not be read.
struct Restored {
  SessionId session;
  uint32_t epoch = 0;
  int64_t end = 0;
  /// Of each chunk, of each of its layers; 0: to the bit.
  std::vector<uint8_t> levels = {};
};

/// From a gateway: nothing of that group is to be kept.
struct Purge {
  Digest group{};
};

/// From server to server, or from a gateway that audits: have you got these?
struct Fetch {
  uint64_t number = 0;
  std::vector<kv::BlobName> names;
};
/// The answer: each of them, or none of its bytes.
struct Fetched {
  uint64_t number = 0;
  std::vector<Bytes> blobs;
};
struct NamedBlob {
  kv::BlobName name;
  Bytes blob;
};
/// From server to server: keep these, as long as there is room.
struct Store {
  uint64_t number = 0;
  std::vector<NamedBlob> blobs;
};
/// The answer.
struct Stored {
  uint64_t number = 0;
};

struct Ping {
  uint64_t number = 0;
};
struct Pong {
  uint64_t number = 0;
  uint64_t num_passes = 0;  // Since the start.
  uint32_t pass_ms = 0;     // For which the pass under way lasts; 0: none is.
};

// ---- Between who trains an adapter and servers of layers that stay as they are. Who
// trains greets as a gateway does. A server keeps nothing between lessons but adapters, as long as
// there is room; for the way back it reads anew.

/// Of adapters by which texts are read: they do not change. Their numbers are apart from those of
/// sessions and lessons.
constexpr uint64_t kAdapterVersion = 1;
constexpr uint64_t kFirstAdapter = uint64_t{1} << 63;

/// Some of an adapter's values for layers that a server has, as they are at that version: those
/// from `begin` on, in the order of adapter_specs() for these layers. They come in order, from 0.
struct Adapt {
  SessionId adapter;
  uint64_t version = 0;
  Span layers;
  int32_t rank = 0;  // As weights::AdapterConfig has these.
  double alpha = 0;
  bool scales_by_root = false;
  std::vector<std::string> targets;
  int64_t begin = 0;
  Bytes values;  // FP32.
};

/// From a server that has texts to read by that adapter, and lacks it for these layers.
struct Unadapted {
  SessionId adapter;
  Span layers;
};

/// Rows of a lesson in order, from 0: to a server what its layers read or, on the way back, the
/// gradient of what they made; from it what they made, or the gradient of what they have read.
struct LessonRows {
  SessionId lesson;
  bool is_gradient = false;
  Rows rows;
};

/// All rows for it are there: a batch of texts of equal length goes through these layers, forwards,
/// or back as well. Answered by rows, on the way back by LessonValues before them, and Learnt; or
/// by Trouble.
struct Lesson {
  SessionId lesson;
  SessionId adapter;     // Number 0: without one.
  uint64_t version = 0;  // Of the adapter.
  Span layers;
  bool goes_back = false;
  uint32_t num_texts = 0;
  uint32_t num_tokens = 0;  // Of each.
  Precision precision = Precision::kFp32;
};

/// Some of the gradients of an adapter's values by that lesson: those from `begin` on.
struct LessonValues {
  SessionId lesson;
  int64_t begin = 0;
  Bytes values;  // FP32.
};

/// All of it was said.
struct Learnt {
  SessionId lesson;
};

// ---- Between servers, one of which lacks files of the model. Neither has to greet.

/// A part of a model is a layer, or (behind them) what is in none (weights/model_manifest.h).
constexpr int32_t kManifestPart = -1;
constexpr int64_t kHashesPiece = -1;

/// Send me a piece of a part.
struct Want {
  std::string model;  // files_of() its digest.
  int32_t part = 0;   // Or kManifestPart.
  int64_t piece = 0;  // Or kHashesPiece: SHA-256 of each of its pieces.
};
/// The answer.
struct Piece {
  std::string model;
  int32_t part = 0;
  int64_t piece = 0;
  Bytes bytes;  // Empty: it is not here.
};

// ---- With the coordinator.

enum class LeaseState : uint8_t {
  kWaiting,  // For layers.
  kLoading,  // They are not served yet.
  kServing,
  kDraining,  // No new sessions.
};
constexpr uint8_t num_values(LeaseState /*state*/) { return 4; }

/// The round trip to another server, as measured.
struct Link {
  std::string address;
  float round_trip_ms = 0;

  bool operator==(const Link&) const = default;
};

/// What a server says of itself. It holds for a few seconds.
struct Lease {
  std::string name;        // Of the server, as members have one.
  std::string address;     // HOST:PORT where gateways and servers reach it.
  std::string model;       // Its name.
  std::string digest;      // Of the model: chains never mix two.
  int32_t num_layers = 0;  // Of the model.
  int32_t max_layers = 0;  // For how many there is memory here.
  bool has_head = false;   // The embedding and the head are here too.
  bool has_files = true;   // Of all layers; else others send it those that it is to serve.
  bool is_fixed = false;   // Its user has named the layers: they stay.
  LeaseState state = LeaseState::kWaiting;
  Span layers;                    // Empty while it waits.
  double layers_per_s = 0;        // For one token of one text, measured; 0: not yet.
  double token_layers_per_s = 0;  // For many tokens at once.
  int64_t num_free = 0;           // Positions for which there is memory,
  int64_t num_positions = 0;      // of so many.
  int32_t num_sessions = 0;
  std::vector<Link> links;
  double neighbour_layers_per_s = 0;  // Kept positions' layers, to another server; 0: not yet.

  bool operator==(const Lease&) const = default;
};

/// From a server, first and then again and again.
struct Offer {
  Lease lease;
};
/// To a server: these are its layers. It stops serving others once its sessions are elsewhere.
struct Place {
  Span layers;
};
/// From a gateway, or a server that looks for neighbours: tell me who serves this model.
struct Watch {
  std::string digest;  // In whatever type its layers compute; empty: all models.
};
/// From a gateway: that server does not compute what its model says. It holds until the gateway
/// hangs up.
struct Report {
  std::string server;  // Its name.
  std::string reason;
};
/// To who watches, first at once and then as it changes.
struct Servers {
  std::vector<Lease> leases;
};
/// To each member of an encrypted run: who is none any more, at once and again as more are.
struct Revoked {
  Bytes signed_list;  // By the run's authority (identity/revocation.h).
};

using Message =
    std::variant<Greet, Greeted, Refused, Work, Output, Reroute, Forget, Trouble, Ping, Pong, Offer,
                 Place, Watch, Servers, Testify, Testimony, Report, Want, Piece, Rest, Revoked,
                 Keep, Restore, Restored, Fetch, Fetched, Store, Stored, Adapt, LessonRows, Lesson,
                 LessonValues, Learnt, Unadapted, Purge>;

}  // namespace atl::chain
