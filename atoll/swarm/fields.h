#pragma once
// Structs as bytes and back, field by field: a struct's fields are named once, in a visit() for
// both directions, that argument-dependent lookup finds. Little-endian, strings and lists preceded
// by a u32 count, maps as lists of pairs in the order of their keys. Reading checks: what it reads
// came from strangers.
#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/swarm/leases.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

void visit(auto& io, Is<Units> auto& m) { io(m.first, m.stride, m.count); }
void visit(auto& io, Is<Peer> auto& m) { io(m.number, m.name, m.address); }
void visit(auto& io, Is<Held> auto& m) { io(m.fragment, m.round, m.step, m.digest); }

class FieldWriter {
 public:
  explicit FieldWriter(ByteWriter& out) : out_(out) {}
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      out_.put(value);
    } else if constexpr (requires { value.begin(); }) {
      out_.put(static_cast<uint32_t>(value.size()));
      for (const auto& item : value) put(item);
    } else {
      visit(*this, value);
    }
  }
  template <typename K, typename V>
  void put(const std::pair<K, V>& entry) {
    (*this)(entry.first, entry.second);
  }
  void put(const std::string& text) { out_.put_string(text); }
  void put(const Digest& digest) { out_.put_bytes(digest); }
  void put(const net::CircuitId& circuit) { out_.put_bytes(circuit); }
  void put(const Bytes& bytes) {
    out_.put(static_cast<uint32_t>(bytes.size()));
    out_.put_bytes(bytes);
  }

  ByteWriter& out_;
};

class FieldReader {
 public:
  explicit FieldReader(ByteReader& in) : in_(in) {}
  template <typename... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }

 private:
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      value = in_.get<T>();
    } else if constexpr (std::is_enum_v<T>) {  // num_values() says how many it has.
      value = static_cast<T>(get_below(num_values(T()), "a choice"));
    } else if constexpr (requires { value.emplace_back(); }) {
      const uint32_t size = get_size();
      for (uint32_t i = 0; i < size; ++i) get(value.emplace_back());
    } else {
      visit(*this, value);
    }
  }
  template <typename K, typename V>
  void get(std::pair<K, V>& entry) {
    (*this)(entry.first, entry.second);
  }
  void get(bool& value) { value = get_below(2, "a truth value") == 1; }
  void get(PartKind& kind) { kind = static_cast<PartKind>(get_below(4, "a part's kind")); }
  void get(net::Way& way) { way = static_cast<net::Way>(get_below(3, "a way")); }
  void get(net::CircuitId& circuit) {
    std::ranges::copy(in_.get_bytes(circuit.size()), circuit.begin());
  }
  void get(std::string& text) { text = in_.get_string(kMaxTextBytes); }
  void get(Digest& digest) { std::ranges::copy(in_.get_bytes(digest.size()), digest.begin()); }
  void get(Bytes& bytes) {
    const auto source = in_.get_bytes(in_.get<uint32_t>());
    bytes.assign(source.begin(), source.end());
  }
  template <typename T>
  void get(std::set<T>& set) {
    const uint32_t size = get_size();
    for (uint32_t i = 0; i < size; ++i) {
      T item{};
      get(item);
      if (!set.empty() && !(*set.rbegin() < item)) throw InputError("a set is not in order");
      set.insert(set.end(), std::move(item));
    }
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

}  // namespace atl::swarm
