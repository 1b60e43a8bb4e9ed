#include "atoll/swarm/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/swarm/frame.h"

namespace atl::swarm {

// The fields of each message, once, for both directions (fields.h). Append only, and raise
// kProtocolVersion.
void visit(auto& io, Is<Header> auto& m) { io(m.run, m.term, m.round, m.attempt); }
void visit(auto& io, Is<Hello> auto& m) {
  io(m.header, m.protocol, m.version, m.name, m.address, m.settings);
}
void visit(auto& io, Is<Welcome> auto& m) { io(m.header, m.config); }
void visit(auto& io, Is<Refused> auto& m) { io(m.header, m.reason); }
void visit(auto& io, Is<Former> auto& m) { io(m.number, m.term, m.num_leased, m.rounds); }
void visit(auto& io, Is<Ready> auto& m) { io(m.header, m.facts, m.checkpoints, m.former); }
void visit(auto& io, Is<Start> auto& m) {
  io(m.header, m.view, m.number, m.start_step, m.step, m.num_commits, m.joins, m.returns, m.members,
     m.held, m.units, m.num_replicas, m.report_every);
}
void visit(auto& io, Is<View> auto& m) { io(m.header, m.view, m.members, m.revocations); }
void visit(auto& io, Is<Resume> auto& m) {
  io(m.header, m.number, m.name, m.address, m.num_commits, m.first_round, m.num_leased);
}
void visit(auto& io, Is<Resumed> auto& m) { io(m.header, m.view, m.members, m.units); }
void visit(auto& io, Is<Begin> auto& m) {
  io(m.header, m.fragment, m.step, m.weight, m.count, m.segment_values, m.num_trained, m.rate,
     m.exchange);
}
void visit(auto& io, Is<OpenAttempt> auto& m) {
  io(m.header, m.view, m.fragment, m.count, m.segment_values, m.members, m.weights, m.shares);
}
void visit(auto& io, Is<Prepared> auto& m) {
  io(m.header, m.digest, m.measures.squares, m.measures.products);
}
void visit(auto& io, Is<Commit> auto& m) {
  io(m.header, m.index, m.held, m.count, m.segment_values, m.members, m.weights, m.stop);
}
void visit(auto& io, Is<Lease> auto& m) { io(m.header, m.units); }
void visit(auto& io, Is<CaughtUp> auto& m) { io(m.header, m.num_commits); }
void visit(auto& io, Is<Reinstated> auto& m) { io(m.header, m.first_round, m.step); }
void visit(auto& io, Is<Due> auto& m) { io(m.header, m.fragment, m.base, m.step); }
void visit(auto& io, Is<Heartbeat> auto& m) {
  io(m.header, m.step, m.loss, m.tokens_per_s, m.num_trained, m.moved, m.caught_up);
}
void visit(auto& io, Is<Alive> auto& m) { io(m.header, m.quiet_ms, m.waits); }
void visit(auto& io, Is<LinkState> auto& m) { io(m.header, m.other, m.up, m.reason, m.way); }
void visit(auto& io, Is<Trouble> auto& m) { io(m.header, m.culprit, m.reason); }
void visit(auto& io, Is<StopRequest> auto& m) { io(m.header); }
void visit(auto& io, Is<Leave> auto& m) { io(m.header); }
void visit(auto& io, Is<Goodbye> auto& m) { io(m.header); }
void visit(auto& io, Is<RunEnded> auto& m) { io(m.header, m.reason, m.complete); }
void visit(auto& io, Is<PeerHello> auto& m) { io(m.header, m.view, m.number, m.to); }
void visit(auto& io, Is<Part> auto& m) {
  io(m.header, m.kind, m.sender, m.receiver, m.segment, m.offset, m.total, m.data);
}
void visit(auto& io, Is<Fetch> auto& m) { io(m.header, m.kind, m.fragment, m.begin, m.end); }
void visit(auto& io, Is<NotHeld> auto& m) { io(m.header, m.kind, m.fragment, m.never); }
void visit(auto& io, Is<Unusable> auto& m) { io(m.header, m.contributor, m.reason); }
void visit(auto& io, Is<Probe> auto& m) { io(m.header, m.reply_bytes, m.data); }
void visit(auto& io, Is<ProbeReply> auto& m) { io(m.header, m.data); }
void visit(auto& io, Is<RelayHello> auto& m) {
  io(m.header, m.protocol, m.version, m.name, m.address);
}
void visit(auto& io, Is<AddressTried> auto& m) { io(m.header, m.address, m.fault); }
void visit(auto& io, Is<Meet> auto& m) { io(m.header, m.other, m.relay, m.circuit, m.may_punch); }
void visit(auto& io, Is<PassOn> auto& m) { io(m.header, m.circuit); }

namespace {

constexpr FrameKind kFrame{
    .magic = 0x4C4C5441, .version = kProtocolVersion, .protocol = "Atoll's protocol"};  // "ATLL"

constexpr std::array<std::string_view, std::variant_size_v<Message>> kKindNames = {
    "Hello",      "Welcome", "Refused",     "Ready",      "Start",        "View",    "Resume",
    "Resumed",    "Begin",   "OpenAttempt", "Prepared",   "Commit",       "Lease",   "CaughtUp",
    "Reinstated", "Due",     "Heartbeat",   "Alive",      "LinkState",    "Trouble", "StopRequest",
    "Leave",      "Goodbye", "RunEnded",    "PeerHello",  "Part",         "Fetch",   "NotHeld",
    "Unusable",   "Probe",   "ProbeReply",  "RelayHello", "AddressTried", "Meet",    "PassOn"};

constexpr size_t kHelloKind = 0;
constexpr size_t kRefusedKind = 2;

}  // namespace

Bytes encode(const Message& message) { return encode_frame(kFrame, message); }

Message decode(std::span<const std::byte> frame) {
  return decode_frame<Message>(kFrame, frame, {kHelloKind, kRefusedKind});
}

std::string kind_name(const Message& message) { return std::string(kKindNames[message.index()]); }

}  // namespace atl::swarm
