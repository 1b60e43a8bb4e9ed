#pragma once
// A model whose rows are numbers: what a layer makes of a token hangs on all the tokens before it,
// so that one that was lost, doubled or read in another order shows.
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/chain/fingerprint.h"
#include "atoll/chain/rows.h"

namespace atl::chain {

constexpr int32_t kLayers = 12;
constexpr uint64_t kGateway = 77;

inline uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15 + b + 0x1234567;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32);
}

inline Bytes bytes_of(uint64_t value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline uint64_t value_at(const Rows& rows, int64_t position) {
  uint64_t value = 0;
  std::memcpy(&value, rows.rows_TC.data() + (position - rows.begin) * sizeof value, sizeof value);
  return value;
}

/// A row is a number: what fingerprints are taken of.
inline Fingerprint seen(Witness& witness, uint64_t value) {
  const auto row = static_cast<float>(value % 1'000'003 + 1);
  return witness.see({&row, 1}, 1).front();
}

/// Keys and values of one text at some layers.
class Memory {
 public:
  void truncate(int64_t length) {
    for (auto& [layer, states] : states_) states.resize(static_cast<size_t>(length));
  }
  uint64_t read(Span layers, uint64_t x) {
    for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
      auto& states = states_[layer];
      states.push_back(mixed(states.empty() ? 0 : states.back(), x));
      x = mixed(states.back(), static_cast<uint64_t>(layer));
    }
    return x;
  }

 private:
  std::map<int32_t, std::vector<uint64_t>> states_;
};

/// The text that the model makes of a prompt, read alone.
inline std::vector<uint64_t> undisturbed(std::vector<uint64_t> tokens, size_t length) {
  Memory memory;
  for (size_t i = 0; i < length; ++i) {
    const uint64_t made = memory.read({0, kLayers}, tokens[i]) % 1000;
    if (i + 1 == tokens.size() && tokens.size() < length) tokens.push_back(made);
  }
  return tokens;
}

}  // namespace atl::chain
