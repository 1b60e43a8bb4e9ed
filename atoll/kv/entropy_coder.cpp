#include "atoll/kv/entropy_coder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/base/error.h"

namespace atl::kv {
namespace {

constexpr size_t kLanes = 16;
constexpr int kWordBits = 16;
constexpr uint32_t kLeast = 1U << kWordBits;  // A state is at least that, between symbols.

using Lanes = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));
using States = std::array<uint32_t, kLanes>;

/// What a table says of each symbol, as an encoder needs it.
struct Shares {
  explicit Shares(const SymbolTable& table) {
    for (size_t i = 0; i < table.num_symbols(); ++i) {
      begin[i] = table.begin(i);
      frequency[i] = table.frequency(i);
      // Over the quotient by less than 2^-14, which is the least that lies between it and the next
      // whole number: its whole part is exact.
      inverse[i] = (1 + 0x1p-50) / frequency[i];
    }
  }
  std::array<uint32_t, kMaxSymbols> begin{};
  std::array<uint32_t, kMaxSymbols> frequency{};
  std::array<double, kMaxSymbols> inverse{};
};

/// The symbols that stand in lanes 0 to count - 1, the last one first. Words go before `words`;
/// returns where they begin.
ATOLL_CLONES uint16_t* encode_lanes(const uint8_t* symbols, size_t count, const Shares& shares,
                                    States& states, uint16_t* words) {
  States begin;
  States frequency;
  std::array<double, kLanes> inverse;
  for (size_t lane = count; lane-- > 0;) {
    const uint8_t symbol = symbols[lane];
    begin[lane] = shares.begin[symbol];
    frequency[lane] = shares.frequency[symbol];
    inverse[lane] = shares.inverse[symbol];
    const uint32_t state = states[lane];
    const uint64_t most = uint64_t{frequency[lane]} << (2 * kWordBits - kFrequencyBits);
    const bool is_full = state >= most;
    words[-1] = static_cast<uint16_t>(state);
    words -= is_full ? 1 : 0;
    states[lane] = is_full ? state >> kWordBits : state;
  }
  for (size_t lane = 0; lane < count; ++lane) {
    const uint32_t state = states[lane];
    const auto quotient = static_cast<uint32_t>(state * inverse[lane]);
    states[lane] = (quotient << kFrequencyBits) + state - quotient * frequency[lane] + begin[lane];
  }
  return words;
}

/// The symbols of lanes 0 to count - 1. Words are read at `words`, at most kLanes of them; returns
/// where the next ones begin.
ATOLL_CLONES const uint16_t* decode_lanes(const SymbolTable& table, size_t count, States& states,
                                          const uint16_t* words, uint8_t* symbols) {
  Lanes state;
  std::memcpy(&state, states.data(), sizeof state);
  const Lanes slot = state & (kFrequencySum - 1);
  Lanes symbol{};
  Lanes begin{};
  Lanes frequency = Lanes{} + table.frequency(0);
  for (size_t i = 1; i < table.num_symbols(); ++i) {
    const auto is_there = slot >= table.begin(i);  // Or in the share of a later one.
    symbol = is_there ? Lanes{} + static_cast<uint32_t>(i) : symbol;
    begin = is_there ? Lanes{} + table.begin(i) : begin;
    frequency = is_there ? Lanes{} + table.frequency(i) : frequency;
  }
  state = frequency * (state >> kFrequencyBits) + slot - begin;
  States next;
  std::memcpy(next.data(), &state, sizeof state);
  States found;
  std::memcpy(found.data(), &symbol, sizeof symbol);
  for (size_t lane = 0; lane < count; ++lane) {
    const bool is_low = next[lane] < kLeast;
    states[lane] = is_low ? next[lane] << kWordBits | *words : next[lane];
    words += is_low ? 1 : 0;
    symbols[lane] = static_cast<uint8_t>(found[lane]);
  }
  return words;
}

}  // namespace

void encode_symbols(std::span<const uint8_t> symbols_CT, std::span<const SymbolTable> tables_C,
                    Bytes& out) {
  ATOLL_CHECK(!tables_C.empty() && symbols_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = symbols_CT.size() / tables_C.size();
  States states;
  states.fill(kLeast);
  // A decoder takes first what came last: they are written from the back. A symbol makes one word
  // at most.
  std::vector<uint16_t> words(symbols_CT.size() + 1);
  uint16_t* begin = words.data() + words.size();
  for (size_t c = tables_C.size(); c-- > 0;) {
    const auto symbols_T = symbols_CT.subspan(c * num_tokens, num_tokens);
    for (const uint8_t symbol : symbols_T) ATOLL_CHECK(symbol < tables_C[c].num_symbols());
    if (tables_C[c].num_symbols() == 1) continue;  // It has no bits.
    const Shares shares(tables_C[c]);
    for (size_t block = (num_tokens + kLanes - 1) / kLanes; block-- > 0;) {
      const size_t count = std::min(kLanes, num_tokens - block * kLanes);
      begin = encode_lanes(symbols_T.data() + block * kLanes, count, shares, states, begin);
    }
  }
  const std::span<const uint16_t> made(begin, words.data() + words.size());
  const size_t at = out.size();
  out.resize(at + sizeof states + made.size_bytes());
  std::memcpy(out.data() + at, states.data(), sizeof states);
  if (!made.empty()) std::memcpy(out.data() + at + sizeof states, made.data(), made.size_bytes());
}

void decode_symbols(std::span<const std::byte> bytes, std::span<const SymbolTable> tables_C,
                    std::span<uint8_t> symbols_CT) {
  ATOLL_CHECK(!tables_C.empty() && symbols_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = symbols_CT.size() / tables_C.size();
  States states;
  if (bytes.size() < sizeof states) throw InputError("a stream of symbols is cut short");
  std::memcpy(states.data(), bytes.data(), sizeof states);
  const auto stream = bytes.subspan(sizeof states);
  if (stream.size() % sizeof(uint16_t) != 0) throw InputError("half a word of a stream is missing");
  for (const uint32_t state : states) {
    if (state < kLeast) throw InputError("a stream of symbols begins as none does");
  }
  // Behind its end as many words as may be read before it is noticed.
  std::vector<uint16_t> words(stream.size() / sizeof(uint16_t) + kLanes);
  if (!stream.empty()) std::memcpy(words.data(), stream.data(), stream.size());
  const uint16_t* const end = words.data() + words.size() - kLanes;
  const uint16_t* at = words.data();
  for (size_t c = 0; c < tables_C.size(); ++c) {
    const auto symbols_T = symbols_CT.subspan(c * num_tokens, num_tokens);
    if (tables_C[c].num_symbols() == 1) {
      std::ranges::fill(symbols_T, uint8_t{0});
      continue;
    }
    for (size_t done = 0; done < num_tokens; done += kLanes) {
      at = decode_lanes(tables_C[c], std::min(kLanes, num_tokens - done), states, at,
                        symbols_T.data() + done);
      if (at > end) throw InputError("a stream of symbols is cut short");
    }
  }
  const bool is_whole =
      at == end && std::ranges::all_of(states, [](uint32_t state) { return state == kLeast; });
  if (!is_whole) throw InputError("a stream of symbols does not end as it began");
}

}  // namespace atl::kv
