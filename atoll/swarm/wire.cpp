#include "atoll/swarm/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"

namespace atl::swarm {
namespace {

constexpr uint32_t kMagic = 0x4C4C5441;  // "ATLL"

constexpr std::array<std::string_view, std::variant_size_v<Message>> kKindNames = {
    "Hello",       "Welcome",  "Refused", "Ready",     "Start",     "Begin",
    "OpenAttempt", "Prepared", "Commit",  "Heartbeat", "Alive",     "Trouble",
    "StopRequest", "Leave",    "Goodbye", "RunEnded",  "PeerHello", "Part"};

constexpr size_t kHelloKind = 0;
constexpr size_t kRefusedKind = 2;

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// The fields of each message, once, for both directions. Append only, and raise kProtocolVersion.
void visit(auto& io, Is<Header> auto& m) { io(m.run, m.term, m.round, m.attempt); }
void visit(auto& io, Is<Peer> auto& m) { io(m.name, m.address); }
void visit(auto& io, Is<Hello> auto& m) {
  io(m.header, m.protocol, m.version, m.name, m.address, m.settings);
}
void visit(auto& io, Is<Welcome> auto& m) { io(m.header, m.config); }
void visit(auto& io, Is<Refused> auto& m) { io(m.header, m.reason); }
void visit(auto& io, Is<Ready> auto& m) { io(m.header, m.facts, m.checkpoints); }
void visit(auto& io, Is<Start> auto& m) { io(m.header, m.view, m.start_step, m.members); }
void visit(auto& io, Is<Begin> auto& m) {
  io(m.header, m.fragment, m.step, m.weight, m.count, m.segment_values, m.exchange);
}
void visit(auto& io, Is<OpenAttempt> auto& m) {
  io(m.header, m.view, m.fragment, m.count, m.segment_values, m.members, m.weights, m.shares);
}
void visit(auto& io, Is<Prepared> auto& m) { io(m.header, m.digest); }
void visit(auto& io, Is<Commit> auto& m) { io(m.header, m.digest, m.stop); }
void visit(auto& io, Is<Heartbeat> auto& m) {
  io(m.header, m.step, m.loss, m.tokens_per_s, m.moved);
}
void visit(auto& io, Is<Alive> auto& m) { io(m.header, m.quiet_ms); }
void visit(auto& io, Is<Trouble> auto& m) { io(m.header, m.reason); }
void visit(auto& io, Is<StopRequest> auto& m) { io(m.header); }
void visit(auto& io, Is<Leave> auto& m) { io(m.header); }
void visit(auto& io, Is<Goodbye> auto& m) { io(m.header); }
void visit(auto& io, Is<RunEnded> auto& m) { io(m.header, m.reason); }
void visit(auto& io, Is<PeerHello> auto& m) { io(m.header, m.view, m.number); }
void visit(auto& io, Is<Part> auto& m) {
  io(m.header, m.kind, m.sender, m.segment, m.offset, m.total, m.data);
}

class Writer {
 public:
  explicit Writer(ByteWriter& out) : out_(out) {}
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      out_.put(value);
    } else {
      visit(*this, value);
    }
  }
  void put(const std::string& text) { out_.put_string(text); }
  void put(const Digest& digest) { out_.put_bytes(digest); }
  void put(const Bytes& bytes) {
    out_.put(static_cast<uint32_t>(bytes.size()));
    out_.put_bytes(bytes);
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    out_.put(static_cast<uint32_t>(list.size()));
    for (const T& item : list) put(item);
  }
  template <typename K, typename V>
  void put(const std::map<K, V>& map) {
    out_.put(static_cast<uint32_t>(map.size()));
    for (const auto& [key, value] : map) (*this)(key, value);
  }

  ByteWriter& out_;
};

class Reader {
 public:
  explicit Reader(ByteReader& in) : in_(in) {}
  template <typename... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }

 private:
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      value = in_.get<T>();
    } else {
      visit(*this, value);
    }
  }
  void get(bool& value) { value = get_below(2, "a truth value") == 1; }
  void get(PartKind& kind) { kind = static_cast<PartKind>(get_below(2, "a part's kind")); }
  void get(std::string& text) { text = in_.get_string(kMaxTextBytes); }
  void get(Digest& digest) { std::ranges::copy(in_.get_bytes(digest.size()), digest.begin()); }
  void get(Bytes& bytes) {
    const auto source = in_.get_bytes(in_.get<uint32_t>());
    bytes.assign(source.begin(), source.end());
  }
  template <typename T>
  void get(std::vector<T>& list) {
    const uint32_t size = get_size();
    for (uint32_t i = 0; i < size; ++i) get(list.emplace_back());
  }
  template <typename K, typename V>
  void get(std::map<K, V>& map) {
    const uint32_t size = get_size();
    for (uint32_t i = 0; i < size; ++i) {
      K key{};
      V value{};
      (*this)(key, value);
      if (!map.empty() && !(map.rbegin()->first < key)) {
        throw InputError("the keys of a map are not in order");
      }
      map.emplace_hint(map.end(), std::move(key), std::move(value));
    }
  }
  uint8_t get_below(uint8_t end, const char* what) {
    const auto value = in_.get<uint8_t>();
    if (value >= end) throw InputError(fmt::format("{} is {}", what, value));
    return value;
  }
  uint32_t get_size() {
    const auto size = in_.get<uint32_t>();
    if (size > kMaxListSize) throw InputError(fmt::format("a list of {} entries", size));
    return size;
  }

  ByteReader& in_;
};

/// A default message of the kind with this index.
template <size_t... kIndexes>
Message empty_message(size_t kind, std::index_sequence<kIndexes...> /*indexes*/) {
  Message message;
  ((kind == kIndexes ? void(message.emplace<kIndexes>()) : void()), ...);
  return message;
}

}  // namespace

Bytes encode(const Message& message) {
  ByteWriter out;
  out.put(kMagic).put(kProtocolVersion).put(static_cast<uint8_t>(message.index()));
  Writer writer(out);
  std::visit([&](const auto& m) { visit(writer, m); }, message);
  return out.take();
}

Message decode(std::span<const std::byte> frame) {
  ByteReader in(frame);
  if (in.get<uint32_t>() != kMagic) throw InputError("not a message of Atoll's protocol");
  const auto version = in.get<uint16_t>();
  const auto kind = in.get<uint8_t>();
  if (version != kProtocolVersion && kind != kHelloKind && kind != kRefusedKind) {
    throw InputError(fmt::format("a message of protocol version {}, and this program speaks {}",
                                 version, kProtocolVersion));
  }
  if (kind >= std::variant_size_v<Message>) {
    throw InputError(fmt::format("a message of unknown kind {}", kind));
  }
  Message message = empty_message(kind, std::make_index_sequence<std::variant_size_v<Message>>());
  Reader reader(in);
  std::visit([&](auto& m) { visit(reader, m); }, message);
  in.expect_end();
  return message;
}

std::string kind_name(const Message& message) { return std::string(kKindNames[message.index()]); }

}  // namespace atl::swarm
