#include "atoll/net/relay.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "atoll/net/circuit.h"
#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
/// What one circuit may pass on before others have their turn.
constexpr size_t kTurnBytes = size_t{512} << 10;
constexpr double kBurstSeconds = 0.1;
/// Those who are told of a circuit come at once, or not at all.
constexpr Duration kExpectedPatience = std::chrono::seconds(30);

std::optional<TokenBucket> bucket_of(double bytes_per_second, Time now) {
  if (bytes_per_second <= 0) return std::nullopt;
  return TokenBucket(bytes_per_second, bytes_per_second * kBurstSeconds, now);
}

/// What epoll must tell before such an attempt is worth another.
uint32_t wanted_by(const Moved& moved) {
  if (moved.outcome == Moved::Outcome::kWantRead) return EPOLLIN;
  return moved.outcome == Moved::Outcome::kWantWrite ? EPOLLOUT : 0U;
}

}  // namespace

struct Relay::Member {
  std::unique_ptr<ByteStream> stream;  // Null once it is over.
  std::shared_ptr<Door::Place> place;
  std::shared_ptr<const Trust> trust;
  std::string run;
  std::string owner;  // Whose circuits are counted together.
  std::string observed;
  std::array<std::byte, kCircuitRequestBytes> request_bytes{};
  size_t num_read = 0;
  std::optional<CircuitRequest> request;
  std::weak_ptr<Circuit> circuit;
  // What it is to be told, [begin, end) of the buffer.
  std::vector<std::byte> buffer;
  size_t begin = 0;
  size_t end = 0;
  bool has_ended = false;  // It says no more.
  std::optional<uint32_t> watched;
  uint32_t wanted_to_read = 0;
  uint32_t wanted_to_write = 0;
};

struct Relay::Circuit {
  std::string key;
  std::array<MemberPtr, 2> members;  // The second one may be missing.
  std::optional<TokenBucket> bucket;
  Time last_moved;
  bool is_joined = false;
  bool waits_for_tokens = false;
  bool is_over = false;
};

Relay::Relay(RelayLimits limits, const Clock& clock)
    : limits_(limits), bucket_(bucket_of(limits.bytes_per_second, clock.now())), loop_(clock) {}

Relay::~Relay() { loop_.stop(); }

RelayTraffic Relay::traffic() const { return {num_circuits_, num_circuits_ever_, bytes_}; }

void Relay::take(std::unique_ptr<ByteStream> stream, std::shared_ptr<Door::Place> place,
                 std::shared_ptr<const Trust> trust) {
  auto member = std::make_shared<Member>();
  const Address remote = remote_address(stream->descriptor()).address();
  member->observed = remote.text();
  member->owner = remote.host;
  if (const auto& facts = stream->peer()) {
    member->run = facts->peer.run;
    member->owner = fmt::format("{}/{}", facts->peer.run, facts->peer.name);
  }
  member->stream = std::move(stream);
  member->place = std::move(place);
  member->trust = std::move(trust);
  loop_.post([this, member] { begin(member); });
}

void Relay::begin(const MemberPtr& member) {
  // One that may have no more is told so when it has asked; who asks for far more is not heard.
  int& count = by_owner_[member->owner];
  if (count >= 2 * limits_.circuits_per_member) return member->stream.reset();
  ++count;
  members_.insert(member);
  loop_.call_after(limits_.partner_patience, [this, weak = std::weak_ptr(member)] {
    const auto still = weak.lock();
    if (!still || !still->stream) return;
    const auto circuit = still->circuit.lock();
    if (circuit && circuit->is_joined) return;
    refuse(still, !still->request                  ? "it said nothing"
                  : circuit && circuit->members[1] ? "its coordinator told of no such circuit"
                                                   : "the other side did not come");
  });
  read_request(member);
}

void Relay::watch(const MemberPtr& member, uint32_t events) {
  if (!member->stream || member->watched.value_or(0) == events) return;
  const int descriptor = member->stream->descriptor();
  if (member->watched) {
    loop_.rewatch(descriptor, events);
  } else {
    loop_.watch(descriptor, events, [this, weak = std::weak_ptr(member)](uint32_t ready) {
      if (const auto still = weak.lock()) on_ready(still, ready);
    });
  }
  member->watched = events;
}

void Relay::on_ready(const MemberPtr& member, uint32_t ready) {
  const auto circuit = member->circuit.lock();
  if (!circuit) return read_request(member);
  if (!circuit->is_joined) return drop(member);  // It went while it waited.
  const uint32_t failed = ready & static_cast<uint32_t>(EPOLLERR | EPOLLHUP);
  if (failed != 0 && member->watched == 0U) {
    // Nothing is asked of it now, and epoll would say so again and again.
    loop_.forget(member->stream->descriptor());
    member->watched.reset();
    return;
  }
  pump(circuit);
}

void Relay::read_request(const MemberPtr& member) {
  while (!member->request) {
    const Moved moved =
        member->stream->read(std::span<std::byte>(member->request_bytes).subspan(member->num_read));
    if (moved.outcome == Moved::Outcome::kEnded) return drop(member);
    if (!moved.is_done()) return watch(member, wanted_by(moved));
    member->num_read += moved.num_bytes;
    if (member->num_read < kCircuitRequestBytes) continue;
    member->request = decode_circuit_request(member->request_bytes);
    if (!member->request) return drop(member);
  }
  if (const std::string why = objection_to(*member); !why.empty()) return refuse(member, why);
  seat(member);
}

std::string Relay::objection_to(const Member& member) const {
  const auto& facts = member.stream->peer();
  if (member.trust && facts) {  // It may have been revoked during the greeting.
    if (std::string why = member.trust->objection(*facts); !why.empty()) return why;
  }
  if (by_owner_.at(member.owner) > limits_.circuits_per_member) {
    return fmt::format("a member has at most {} circuits here", limits_.circuits_per_member);
  }
  return "";
}

void Relay::seat(const MemberPtr& member) {
  const std::string key =
      fmt::format("{}/{}", member->run, as_text(std::span(member->request->circuit)));
  const auto found = circuits_.find(key);
  if (found == circuits_.end()) {
    if (std::cmp_greater_equal(circuits_.size(), limits_.num_circuits)) {
      return refuse(member, fmt::format("all {} circuits are taken", limits_.num_circuits));
    }
    auto circuit = std::make_shared<Circuit>();
    circuit->key = key;
    circuit->members[0] = member;
    member->circuit = circuit;
    circuits_.emplace(key, std::move(circuit));
    return watch(member, EPOLLRDHUP);  // It has nothing to say to anybody yet.
  }
  const std::shared_ptr<Circuit> circuit = found->second;
  if (circuit->members[1]) return refuse(member, "that circuit is taken");
  const Member& first = *circuit->members[0];
  if (first.request->calls == member->request->calls) {
    return refuse(member, "both sides want to be the one that calls, or the one that is called");
  }
  if (member->stream->peer() && first.owner == member->owner) {
    return refuse(member, "nobody meets itself");
  }
  circuit->members[1] = member;
  member->circuit = circuit;
  watch(member, EPOLLRDHUP);
  join(circuit);
}

void Relay::expect(const CircuitId& id) {
  loop_.post([this, id] {
    std::erase_if(expected_, [&](const auto& entry) {
      return loop_.now() - entry.second > kExpectedPatience;
    });
    expected_.emplace(id, loop_.now());
    for (const auto& [key, circuit] : std::map(circuits_)) {
      if (circuit->members[0]->request->circuit == id) join(circuit);
    }
  });
}

void Relay::join(const std::shared_ptr<Circuit>& joined) {
  Circuit& circuit = *joined;
  if (circuit.is_joined || !circuit.members[1]) return;
  const auto expected = expected_.find(circuit.members[0]->request->circuit);
  if (limits_.only_expected && expected == expected_.end()) return;  // It may come to be.
  if (expected != expected_.end()) expected_.erase(expected);
  circuit.is_joined = true;
  circuit.bucket = bucket_of(limits_.circuit_bytes_per_second, loop_.now());
  circuit.last_moved = loop_.now();
  for (size_t i = 0; i < 2; ++i) {
    const Member& other = *circuit.members[1 - i];
    Member& one = *circuit.members[i];
    one.buffer.resize(kBufferBytes);
    const auto answer = encode(
        CircuitAnswer{.refusal = "", .observed = other.observed, .local = other.request->local});
    std::ranges::copy(answer, one.buffer.begin());
    one.end = answer.size();
  }
  ++num_circuits_;
  ++num_circuits_ever_;
  look_for_idleness(joined);
  pump(joined);
}

void Relay::refuse(const MemberPtr& member, const std::string& why) {
  const auto answer = encode(CircuitAnswer{.refusal = why, .observed = "", .local = ""});
  const std::array parts = {std::span<const std::byte>(answer)};
  member->stream->write(parts);  // Its first words: there is room for them.
  drop(member);
}

void Relay::drop(const MemberPtr& member) {
  if (!member->stream) return;
  member->stream->say_goodbye();
  if (member->watched) loop_.forget(member->stream->descriptor());
  member->stream.reset();
  member->place.reset();
  const auto owned = by_owner_.find(member->owner);
  if (--owned->second == 0) by_owner_.erase(owned);
  members_.erase(member);
  if (const auto circuit = member->circuit.lock()) end(circuit);
}

void Relay::end(const std::shared_ptr<Circuit>& circuit) {
  if (std::exchange(circuit->is_over, true)) return;
  circuits_.erase(circuit->key);
  if (circuit->is_joined) --num_circuits_;
  for (const MemberPtr& member : circuit->members) {
    if (member) drop(member);
  }
}

std::optional<Duration> Relay::wait_for_tokens(const Circuit& circuit) const {
  Duration wait{};
  for (const auto* bucket : {&bucket_, &circuit.bucket}) {
    if (*bucket) wait = std::max(wait, (*bucket)->wait(loop_.now()));
  }
  return wait > Duration{} ? std::optional(wait) : std::nullopt;
}

/// Passes on what there is; false where the circuit is to end.
bool Relay::pass(Circuit& circuit, Member& from, Member& to) {
  from.wanted_to_read = 0;
  to.wanted_to_write = 0;
  size_t num_moved = 0;
  while (true) {
    while (to.begin < to.end) {
      const std::array parts = {
          std::span<const std::byte>(to.buffer).subspan(to.begin, to.end - to.begin)};
      const Moved moved = to.stream->write(parts);
      if (moved.outcome == Moved::Outcome::kEnded) return false;
      if (!moved.is_done()) {
        to.wanted_to_write = wanted_by(moved);
        return true;
      }
      to.begin += moved.num_bytes;
      circuit.last_moved = loop_.now();
    }
    to.begin = to.end = 0;
    if (from.has_ended) return false;  // All that it said has been passed on.
    if (num_moved >= kTurnBytes) {     // What TLS has read already epoll does not see.
      loop_.post([this, weak = from.circuit] {
        if (const auto still = weak.lock()) pump(still);
      });
      return true;
    }
    if (const auto wait = wait_for_tokens(circuit)) {
      if (!std::exchange(circuit.waits_for_tokens, true)) {
        loop_.call_after(*wait, [this, weak = from.circuit] {
          const auto still = weak.lock();
          if (!still) return;
          still->waits_for_tokens = false;
          pump(still);
        });
      }
      return true;
    }
    const Moved moved = from.stream->read(to.buffer);
    if (moved.outcome == Moved::Outcome::kEnded) {
      from.has_ended = true;
      continue;
    }
    if (!moved.is_done()) {
      from.wanted_to_read = wanted_by(moved);
      return true;
    }
    to.end = moved.num_bytes;
    num_moved += moved.num_bytes;
    const auto count = static_cast<int64_t>(moved.num_bytes);
    bytes_ += count;
    if (bucket_) bucket_->take(loop_.now(), count);
    if (circuit.bucket) circuit.bucket->take(loop_.now(), count);
  }
}

void Relay::pump(const std::shared_ptr<Circuit>& circuit) {
  if (circuit->is_over) return;
  const auto& [a, b] = circuit->members;
  if (!pass(*circuit, *a, *b) || !pass(*circuit, *b, *a)) return end(circuit);
  for (const MemberPtr& member : circuit->members) {
    watch(member, member->wanted_to_read | member->wanted_to_write);
  }
}

void Relay::look_for_idleness(const std::shared_ptr<Circuit>& circuit) {
  if (circuit->is_over) return;
  const Duration idle = loop_.now() - circuit->last_moved;
  if (idle >= limits_.idle_patience) return end(circuit);
  loop_.call_after(limits_.idle_patience - idle, [this, weak = std::weak_ptr(circuit)] {
    if (const auto still = weak.lock()) look_for_idleness(still);
  });
}

void Relay::end_revoked() {
  loop_.post([this] {
    const std::vector<MemberPtr> all(members_.begin(), members_.end());
    for (const MemberPtr& member : all) {
      if (!member->stream || !member->trust || !member->stream->peer()) continue;
      if (!member->trust->objection(*member->stream->peer()).empty()) drop(member);
    }
  });
}

}  // namespace atl::net
