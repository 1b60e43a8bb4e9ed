#include "atoll/chain/wire.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/swarm/frame.h"

// The fields of each message, once, for both directions. Append only, and raise kProtocol.

namespace atl::decoding {

using swarm::Is;

void visit(auto& io, Is<SamplerOptions> auto& m) {
  io(m.temperature, m.top_k, m.top_p, m.min_p, m.repetition_penalty, m.frequency_penalty,
     m.presence_penalty, m.seed);
}
void visit(auto& io, Is<SeenToken> auto& m) { io(m.id, m.num_made); }
void visit(auto& io, Is<TokenScore> auto& m) { io(m.id, m.logprob, m.top); }
void visit(auto& io, Is<Order> auto& m) {
  io(m.wanted);
  if (m.wanted == Wanted::kScore) io(m.id, m.num_top);
  if (m.wanted == Wanted::kToken) {
    io(m.is_scored, m.num_top, m.position, m.sampler, m.bias, m.seen, m.allowed);
  }
}
void visit(auto& io, Is<Outcome> auto& m) {
  io(m.wanted);
  if (m.wanted == Wanted::kHidden) io(m.hidden_C);
  if (m.wanted == Wanted::kScore || m.wanted == Wanted::kToken) io(m.score);
}

}  // namespace atl::decoding

namespace atl::kv {

using swarm::Is;

void visit(auto& io, Is<Chunk> auto& m) { io(m.secret, m.check); }
void visit(auto& io, Is<BlobName> auto& m) { io(m.group, m.id); }

}  // namespace atl::kv

namespace atl::chain {

using swarm::Is;

void visit(auto& io, Is<Span> auto& m) { io(m.begin, m.end); }
void visit(auto& io, Is<SessionId> auto& m) { io(m.gateway, m.number); }
void visit(auto& io, Is<Hop> auto& m) { io(m.address, m.layers, m.send_from, m.restored); }
void visit(auto& io, Is<Greet> auto& m) { io(m.protocol, m.version, m.model, m.gateway); }
void visit(auto& io, Is<Greeted> auto& m) { io(m.layers); }
void visit(auto& io, Is<Refused> auto& m) { io(m.reason); }
void visit(auto& io, Is<Rows> auto& m) {
  io(m.begin, m.num_tokens, m.precision, m.rows_TC, m.ids, m.outcomes, m.orders);
}
void visit(auto& io, Is<Work> auto& m) {
  io(m.session, m.epoch, m.branch, m.shares_with, m.num_shared, m.adapter, m.hops, m.rows);
}
void visit(auto& io, Is<Output> auto& m) { io(m.session, m.epoch, m.branch, m.rows); }
void visit(auto& io, Is<Reroute> auto& m) { io(m.session, m.epoch, m.hops); }
void visit(auto& io, Is<Forget> auto& m) { io(m.session, m.epoch); }
void visit(auto& io, Is<Trouble> auto& m) { io(m.session, m.epoch, m.fault, m.reason); }
void visit(auto& io, Is<Ping> auto& m) { io(m.number); }
void visit(auto& io, Is<Pong> auto& m) { io(m.number, m.num_passes, m.pass_ms); }
void visit(auto& io, Is<Link> auto& m) { io(m.address, m.round_trip_ms); }
void visit(auto& io, Is<Lease> auto& m) {
  io(m.name, m.address, m.model, m.digest, m.num_layers, m.max_layers, m.is_fixed, m.state,
     m.layers, m.layers_per_s, m.token_layers_per_s, m.num_free, m.num_positions, m.num_sessions,
     m.links, m.has_head, m.has_files, m.neighbour_layers_per_s);
}
void visit(auto& io, Is<Offer> auto& m) { io(m.lease); }
void visit(auto& io, Is<Place> auto& m) { io(m.layers); }
void visit(auto& io, Is<Watch> auto& m) { io(m.digest); }
void visit(auto& io, Is<Servers> auto& m) { io(m.leases); }
void visit(auto& io, Is<Fingerprint> auto& m) { io(m.seed, m.value); }
void visit(auto& io, Is<Testify> auto& m) { io(m.session, m.audit, m.end); }
void visit(auto& io, Is<Testimony> auto& m) { io(m.session, m.audit, m.received, m.made); }
void visit(auto& io, Is<Report> auto& m) { io(m.server, m.reason); }
void visit(auto& io, Is<Want> auto& m) { io(m.model, m.part, m.piece); }
void visit(auto& io, Is<Piece> auto& m) { io(m.model, m.part, m.piece, m.bytes); }
void visit(auto& io, Is<Rest> auto& m) { io(m.session); }
void visit(auto& io, Is<Revoked> auto& m) { io(m.signed_list); }
void visit(auto& io, Is<Keep> auto& m) { io(m.session, m.group, m.first, m.chunks, m.neighbour); }
void visit(auto& io, Is<Restore> auto& m) {
  io(m.session, m.epoch, m.layers, m.group, m.chunks, m.holders, m.round_after_ms, m.read_ms);
}
void visit(auto& io, Is<Restored> auto& m) { io(m.session, m.epoch, m.end, m.levels); }
void visit(auto& io, Is<Purge> auto& m) { io(m.group); }
void visit(auto& io, Is<Fetch> auto& m) { io(m.number, m.names); }
void visit(auto& io, Is<Fetched> auto& m) { io(m.number, m.blobs); }
void visit(auto& io, Is<NamedBlob> auto& m) { io(m.name, m.blob); }
void visit(auto& io, Is<Store> auto& m) { io(m.number, m.blobs); }
void visit(auto& io, Is<Stored> auto& m) { io(m.number); }
void visit(auto& io, Is<Adapt> auto& m) {
  io(m.adapter, m.version, m.layers, m.rank, m.alpha, m.scales_by_root, m.targets, m.begin,
     m.values);
}
void visit(auto& io, Is<LessonRows> auto& m) { io(m.lesson, m.is_gradient, m.rows); }
void visit(auto& io, Is<Lesson> auto& m) {
  io(m.lesson, m.adapter, m.version, m.layers, m.goes_back, m.num_texts, m.num_tokens, m.precision);
}
void visit(auto& io, Is<LessonValues> auto& m) { io(m.lesson, m.begin, m.values); }
void visit(auto& io, Is<Learnt> auto& m) { io(m.lesson); }
void visit(auto& io, Is<Unadapted> auto& m) { io(m.adapter, m.layers); }

namespace {

constexpr swarm::FrameKind kFrame{
    .magic = 0x434C5441, .version = kProtocol, .protocol = "a chain's servers"};  // "ATLC"

constexpr std::array<std::string_view, std::variant_size_v<Message>> kKindNames = {
    "Greet",   "Greeted",    "Refused",  "Work",         "Output",  "Reroute",   "Forget",
    "Trouble", "Ping",       "Pong",     "Offer",        "Place",   "Watch",     "Servers",
    "Testify", "Testimony",  "Report",   "Want",         "Piece",   "Rest",      "Revoked",
    "Keep",    "Restore",    "Restored", "Fetch",        "Fetched", "Store",     "Stored",
    "Adapt",   "LessonRows", "Lesson",   "LessonValues", "Learnt",  "Unadapted", "Purge"};
constexpr size_t kGreetKind = 0;
constexpr size_t kRefusedKind = 2;
constexpr size_t kMaxAddressBytes = 260;
constexpr int64_t kMaxPosition = int64_t{1} << 40;
constexpr int32_t kMostLessonRank = 4096;
constexpr size_t kMostLessonTargets = 256;
constexpr uint64_t kMostLessonRows = uint64_t{1} << 20;

constexpr size_t kMaxChunks = size_t{1} << 16;  // 16 million tokens.
constexpr int32_t kMaxLayers = 1 << 12;
constexpr size_t kMaxLevels = size_t{3} << 20;  // Of chunks' layers, a byte each: in one frame.
constexpr size_t kMaxHolders = 4;
constexpr size_t kMaxBlobs = size_t{1} << 12;  // A chunk of all layers.

bool is_position(int64_t value) { return value >= 0 && value <= kMaxPosition; }

void check_address(const std::string& address) {
  if (address.size() > kMaxAddressBytes) throw InputError("an address that cannot be one");
}

void check(const std::vector<Hop>& hops) {
  if (hops.empty() || hops.size() > kMaxHops) {
    throw InputError(fmt::format("a route of {} servers", hops.size()));
  }
  for (size_t i = 0; i < hops.size(); ++i) {
    const Span& layers = hops[i].layers;
    const bool joins = i == 0 || layers.begin == hops[i - 1].layers.end;
    if (layers.begin < 0 || layers.size() <= 0 || !joins) {
      throw InputError("a route whose layers do not follow each other");
    }
    check_address(hops[i].address);
    if (!is_position(hops[i].send_from) || !is_position(hops[i].restored)) {
      throw InputError("a route with a position that cannot be");
    }
  }
}

/// `instead`: what may be in the place of rows.
void check_rows(const Rows& rows, size_t instead) {
  const size_t count = rows.num_tokens;
  const size_t size = rows.rows_TC.size();
  // A row has at least a byte.
  const bool has_rows = count == 0 ? size == 0 : size >= count && size % count == 0;
  const bool are_right = instead > 0 ? instead == count && size == 0 : has_rows;
  if (!is_position(rows.begin) || !are_right) {
    throw InputError(fmt::format("{} bytes and {} others for {} rows from position {}", size,
                                 instead, count, rows.begin));
  }
}

void check_span(const Span& layers) {
  if (layers.begin < 0 || layers.size() <= 0) throw InputError("layers that cannot be");
}

void check_values(int64_t begin, const Bytes& values) {
  if (!is_position(begin) || values.empty() || values.size() % sizeof(float) != 0) {
    throw InputError(fmt::format("{} bytes for values from {}", values.size(), begin));
  }
}

struct Check {
  void operator()(const Work& m) const {
    check(m.hops);
    if (m.rows.num_tokens == 0) throw InputError("work without rows");
    check_rows(m.rows, m.rows.ids.size());
    const size_t num_orders = m.rows.orders.size();
    if (!m.rows.outcomes.empty() || (num_orders > 0 && num_orders != m.rows.num_tokens)) {
      throw InputError(fmt::format("{} orders for {} rows", num_orders, m.rows.num_tokens));
    }
  }
  void operator()(const Output& m) const {
    check_rows(m.rows, m.rows.outcomes.size());
    if (!m.rows.ids.empty() || !m.rows.orders.empty()) throw InputError("an output of orders");
  }
  void operator()(const Reroute& m) const { check(m.hops); }
  void operator()(const Testify& m) const {
    if (!is_position(m.end)) throw InputError("a position that cannot be");
  }
  void operator()(const Keep& m) const {
    check_address(m.neighbour);
    if (m.first + m.chunks.size() > kMaxChunks) throw InputError("chunks beyond any context");
  }
  void operator()(const Restore& m) const {
    for (const std::string& holder : m.holders) check_address(holder);
    if (m.layers.begin < 0 || m.layers.size() <= 0 || m.layers.end > kMaxLayers ||
        m.holders.size() > kMaxHolders || m.chunks.size() > kMaxChunks) {
      throw InputError("what is to be restored cannot be");
    }
  }
  void operator()(const Restored& m) const {
    if (!is_position(m.end) || m.levels.size() > kMaxLevels) {
      throw InputError("a position that cannot be");
    }
  }
  void operator()(const Fetch& m) const {
    if (m.names.size() > kMaxBlobs) throw InputError("too many blobs at once");
  }
  void operator()(const Adapt& m) const {
    check_span(m.layers);
    const bool is_of_nothing = m.begin == 0 && m.values.empty();  // It changes none of the layers.
    if (!is_of_nothing) check_values(m.begin, m.values);
    const bool is_small =
        m.rank >= 0 && m.rank <= kMostLessonRank && m.targets.size() <= kMostLessonTargets;
    if (!is_small || !std::isfinite(m.alpha)) throw InputError("an adapter that cannot be");
  }
  void operator()(const Unadapted& m) const { check_span(m.layers); }
  void operator()(const LessonRows& m) const {
    if (m.rows.num_tokens == 0) throw InputError("a lesson's rows without any");
    check_rows(m.rows, 0);
    if (!m.rows.ids.empty() || !m.rows.orders.empty() || !m.rows.outcomes.empty()) {
      throw InputError("a lesson's rows with more than rows");
    }
  }
  void operator()(const Lesson& m) const {
    check_span(m.layers);
    const uint64_t rows = uint64_t{m.num_texts} * m.num_tokens;
    if (rows == 0 || rows > kMostLessonRows) {
      throw InputError(fmt::format("a lesson of {} texts of {} tokens", m.num_texts, m.num_tokens));
    }
  }
  void operator()(const LessonValues& m) const { check_values(m.begin, m.values); }
  void operator()(const auto& /*message*/) const {}
};

}  // namespace

Bytes encode(const Message& message) { return swarm::encode_frame(kFrame, message); }

bool is_message(std::span<const std::byte> frame) {
  return frame.size() >= sizeof kFrame.magic && ByteReader(frame).get<uint32_t>() == kFrame.magic;
}

Message decode(std::span<const std::byte> frame) {
  Message message = swarm::decode_frame<Message>(kFrame, frame, {kGreetKind, kRefusedKind});
  std::visit(Check(), message);
  return message;
}

std::string kind_name(const Message& message) { return std::string(kKindNames[message.index()]); }

}  // namespace atl::chain
