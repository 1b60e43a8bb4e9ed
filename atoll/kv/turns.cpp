#include "atoll/kv/turns.h"

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/codec/float_bits.h"

namespace atl::kv {
namespace {

ATOLL_CLONES void widen(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = codec::float_of(uint32_t{from[i]} << 16);
}

ATOLL_CLONES void narrow(const float* from, size_t count, uint16_t* to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = static_cast<uint16_t>(codec::round_to_bf16(codec::bits_of(from[i])));
  }
}

ATOLL_CLONES void add(float* to, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) to[i] += value;
}

ATOLL_CLONES void turn(float* low, float* high, const float* cos, const float* sin, size_t count) {
  for (size_t t = 0; t < count; ++t) {
    const float x = low[t];
    const float y = high[t];
    low[t] = x * cos[t] - y * sin[t];
    high[t] = y * cos[t] + x * sin[t];
  }
}

ATOLL_CLONES void turn_back(float* low, float* high, const float* cos, const float* sin,
                            size_t count) {
  for (size_t t = 0; t < count; ++t) {
    const float x = low[t];
    const float y = high[t];
    low[t] = x * cos[t] + y * sin[t];
    high[t] = y * cos[t] - x * sin[t];
  }
}

template <typename F>
void for_pairs(std::span<float> y_CT, const Turns& turns, const TurnTable& table, const F& visit) {
  const size_t num_tokens = turns.num_tokens;
  const size_t num_pairs = table.cos_RT.size() / num_tokens;
  const size_t num_channels = y_CT.size() / num_tokens;
  for (size_t head = 0; head + turns.head_size <= num_channels; head += turns.head_size) {
    for (size_t i = 0; i < num_pairs; ++i) {
      float* const low = y_CT.data() + (head + i) * num_tokens;
      visit(low, low + num_pairs * num_tokens, table.cos_RT.data() + i * num_tokens,
            table.sin_RT.data() + i * num_tokens, num_tokens);
    }
  }
}

}  // namespace

const TurnTable* Turns::of(size_t layer) const {
  ATOLL_CHECK(layer < table_of_layer.size());
  const int32_t index = table_of_layer[layer];
  return index < 0 ? nullptr : &tables.at(static_cast<size_t>(index));
}

Turns Turns::of_tokens(std::span<const uint32_t> tokens) const {
  Turns some{.num_tokens = tokens.size(),
             .head_size = head_size,
             .tables = {},
             .table_of_layer = table_of_layer};
  for (const TurnTable& table : tables) {
    TurnTable& to = some.tables.emplace_back();
    for (size_t row = 0; row < table.cos_RT.size(); row += num_tokens) {
      for (const uint32_t token : tokens) {
        to.cos_RT.push_back(table.cos_RT[row + token]);
        to.sin_RT.push_back(table.sin_RT[row + token]);
      }
    }
  }
  return some;
}

void straighten(std::span<const uint16_t> plane_CT, const Turns& turns, const TurnTable* table,
                std::span<const float> means_C, std::span<float> y_CT) {
  ATOLL_CHECK(plane_CT.size() == y_CT.size() && y_CT.size() == means_C.size() * turns.num_tokens);
  widen(plane_CT.data(), plane_CT.size(), y_CT.data());
  if (table != nullptr) for_pairs(y_CT, turns, *table, turn_back);
  for (size_t c = 0; c < means_C.size(); ++c) {
    add(y_CT.data() + c * turns.num_tokens, turns.num_tokens, -means_C[c]);
  }
}

void turn_again(std::span<float> y_CT, const Turns& turns, const TurnTable* table,
                std::span<const float> means_C, std::span<uint16_t> plane_CT) {
  ATOLL_CHECK(plane_CT.size() == y_CT.size() && y_CT.size() == means_C.size() * turns.num_tokens);
  for (size_t c = 0; c < means_C.size(); ++c) {
    add(y_CT.data() + c * turns.num_tokens, turns.num_tokens, means_C[c]);
  }
  if (table != nullptr) for_pairs(y_CT, turns, *table, turn);
  narrow(y_CT.data(), y_CT.size(), plane_CT.data());
}

}  // namespace atl::kv
