#include "atoll/data/sample_order.h"

#include <bit>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"

namespace atl::data {
namespace {

/// numpy's SeedSequence (after O'Neill's seed_seq_fe): hashes a seed of any length into a pool of
/// four words, then stretches the pool to as many words as a generator needs.
class SeedSequence {
 public:
  explicit SeedSequence(Pcg64::Uint128 seed) {
    std::array<uint32_t, 4> entropy{};
    for (size_t i = 0; i < entropy.size(); ++i) {
      entropy[i] = static_cast<uint32_t>(seed >> (32 * i));
      pool_[i] = hash_mix(entropy[i]);
    }
    for (size_t source = 0; source < pool_.size(); ++source) {
      for (size_t target = 0; target < pool_.size(); ++target) {
        if (source != target) pool_[target] = mix(pool_[target], hash_mix(pool_[source]));
      }
    }
  }

  std::array<uint64_t, 4> generate() const {
    uint32_t constant = 0x8b51f9dd;
    std::array<uint32_t, 8> words{};
    for (size_t i = 0; i < words.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      words[i] = value ^ (value >> 16);
    }
    std::array<uint64_t, 4> result{};
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = words[2 * i] | (uint64_t{words[2 * i + 1]} << 32);
    }
    return result;
  }

 private:
  uint32_t hash_mix(uint32_t value) {
    value ^= hash_constant_;
    hash_constant_ *= 0x931e8875;
    value *= hash_constant_;
    return value ^ (value >> 16);
  }
  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t result = 0xca01f9ddU * x - 0x4973f715U * y;
    return result ^ (result >> 16);
  }

  uint32_t hash_constant_ = 0x43b0d7e5;
  std::array<uint32_t, 4> pool_{};
};

Pcg64::Uint128 wide(uint64_t high, uint64_t low) {
  return (static_cast<Pcg64::Uint128>(high) << 64) | low;
}

const Pcg64::Uint128 kMultiplier = wide(2549297995355413924U, 4865540595714422341U);

}  // namespace

Pcg64::Pcg64(Uint128 seed) {
  const std::array<uint64_t, 4> words = SeedSequence(seed).generate();
  increment_ = (wide(words[2], words[3]) << 1) | 1;
  state_ = increment_;
  state_ += wide(words[0], words[1]);
  state_ = state_ * kMultiplier + increment_;
}

uint64_t Pcg64::next64() {
  state_ = state_ * kMultiplier + increment_;
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint32_t Pcg64::next32() {
  if (std::exchange(has_kept_, !has_kept_)) return kept_;
  const uint64_t both = next64();
  kept_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

uint64_t Pcg64::below_or_equal(uint64_t max) {
  if (max == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);
  for (;;) {
    const uint64_t value = (max <= 0xffffffffU ? next32() : next64()) & mask;
    if (value <= max) return value;
  }
}

void shuffle(Pcg64& generator, std::span<uint32_t> values) {
  for (size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[generator.below_or_equal(i)]);
  }
}

std::vector<uint32_t> sample_order(uint64_t seed, int64_t pass, int64_t num_rows) {
  ATOLL_CHECK(pass >= 0 && num_rows >= 0 && num_rows < (int64_t{1} << 32));
  std::vector<uint32_t> order(static_cast<size_t>(num_rows));
  std::iota(order.begin(), order.end(), 0U);
  const Pcg64::Uint128 epoch = static_cast<Pcg64::Uint128>(pass) + 1;
  Pcg64 generator(static_cast<Pcg64::Uint128>(seed) + epoch);
  shuffle(generator, order);
  return order;
}

}  // namespace atl::data
