#include "atoll/kv/entropy_coder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::kv {
namespace {

constexpr size_t kLanes = 16;
constexpr int kWordBits = 16;
constexpr uint32_t kLeast = 1U << kWordBits;  // A state is at least that, between symbols.
constexpr uint32_t kMask = kFrequencySum - 1;

using States = std::array<uint32_t, kLanes>;

/// Which symbol's share a place lies in: nearly found by its upper bits.
class Finder {
 public:
  explicit Finder(const SymbolTable& table) : cumulative_(table.cumulative()) {
    size_t symbol = 0;
    for (size_t i = 0; i < first_.size(); ++i) {
      while (cumulative_[symbol + 1] <= i << kShift) ++symbol;
      first_[i] = static_cast<uint8_t>(symbol);
    }
  }
  size_t operator()(uint32_t slot) const {
    size_t symbol = first_[slot >> kShift];
    while (cumulative_[symbol + 1] <= slot) ++symbol;
    return symbol;
  }
  uint32_t begin(size_t symbol) const { return cumulative_[symbol]; }
  uint32_t end(size_t symbol) const { return cumulative_[symbol + 1]; }

 private:
  static constexpr int kShift = kFrequencyBits - 8;

  std::span<const uint32_t> cumulative_;
  std::array<uint8_t, 256> first_{};
};

class WordReader {
 public:
  explicit WordReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint32_t next() {
    uint16_t word = 0;
    if (at_ + sizeof word > bytes_.size()) throw InputError("a stream of symbols is cut short");
    std::memcpy(&word, bytes_.data() + at_, sizeof word);
    at_ += sizeof word;
    return word;
  }
  bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace

void encode_symbols(std::span<const uint8_t> symbols_CT, std::span<const SymbolTable> tables_C,
                    Bytes& out) {
  ATOLL_CHECK(!tables_C.empty() && symbols_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = symbols_CT.size() / tables_C.size();
  States states;
  states.fill(kLeast);
  std::vector<uint16_t> words;  // The last one first: a decoder takes what came last.
  for (size_t c = tables_C.size(); c-- > 0;) {
    const auto symbols_T = symbols_CT.subspan(c * num_tokens, num_tokens);
    for (size_t t = num_tokens; t-- > 0;) {
      uint32_t& state = states[t % kLanes];
      const uint8_t symbol = symbols_T[t];
      ATOLL_CHECK(symbol < tables_C[c].num_symbols());
      const uint32_t frequency = tables_C[c].frequency(symbol);
      const uint64_t most = uint64_t{frequency} << (2 * kWordBits - kFrequencyBits);
      if (state >= most) {
        words.push_back(static_cast<uint16_t>(state));
        state >>= kWordBits;
      }
      state = (state / frequency << kFrequencyBits) + state % frequency +
              tables_C[c].cumulative()[symbol];
    }
  }
  const size_t at = out.size();
  out.resize(at + sizeof states + words.size() * sizeof words[0]);
  std::memcpy(out.data() + at, states.data(), sizeof states);
  std::ranges::reverse(words);
  if (!words.empty()) {
    std::memcpy(out.data() + at + sizeof states, words.data(), words.size() * sizeof words[0]);
  }
}

void decode_symbols(std::span<const std::byte> bytes, std::span<const SymbolTable> tables_C,
                    std::span<uint8_t> symbols_CT) {
  ATOLL_CHECK(!tables_C.empty() && symbols_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = symbols_CT.size() / tables_C.size();
  States states;
  if (bytes.size() < sizeof states) throw InputError("a stream of symbols is cut short");
  std::memcpy(states.data(), bytes.data(), sizeof states);
  WordReader words(bytes.subspan(sizeof states));
  for (const uint32_t state : states) {
    if (state < kLeast) throw InputError("a stream of symbols begins as none does");
  }
  for (size_t c = 0; c < tables_C.size(); ++c) {
    const auto symbols_T = symbols_CT.subspan(c * num_tokens, num_tokens);
    if (tables_C[c].num_symbols() == 1) {  // It has no bits.
      std::ranges::fill(symbols_T, uint8_t{0});
      continue;
    }
    const Finder find(tables_C[c]);
    for (size_t t = 0; t < num_tokens; ++t) {
      uint32_t& state = states[t % kLanes];  // None waits for the one before it.
      const uint32_t slot = state & kMask;
      const size_t symbol = find(slot);
      state = (find.end(symbol) - find.begin(symbol)) * (state >> kFrequencyBits) + slot -
              find.begin(symbol);
      symbols_T[t] = static_cast<uint8_t>(symbol);
      if (state < kLeast) state = state << kWordBits | words.next();
    }
  }
  const bool is_whole = words.is_at_end() &&
                        std::ranges::all_of(states, [](uint32_t state) { return state == kLeast; });
  if (!is_whole) throw InputError("a stream of symbols does not end as it began");
}

}  // namespace atl::kv
