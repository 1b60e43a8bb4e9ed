#include "atoll/data/numpy_random.h"

namespace atl::data {
namespace {

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t result = 0xca01f9ddU * x - 0x4973f715U * y;
  return result ^ (result >> 16);
}

constexpr Pcg64::Uint128 wide(uint64_t high, uint64_t low) {
  return (static_cast<Pcg64::Uint128>(high) << 64) | low;
}

constexpr Pcg64::Uint128 kMultiplier = wide(2549297995355413924U, 4865540595714422341U);

SeedSequence sequence_of(Pcg64::Uint128 seed) {
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(seed >> (32 * i));
  return SeedSequence(words);
}

}  // namespace

SeedSequence::SeedSequence(std::span<const uint32_t> entropy) {
  for (size_t i = 0; i < pool_.size(); ++i) {
    pool_[i] = hash_mix(i < entropy.size() ? entropy[i] : 0);
  }
  for (size_t source = 0; source < pool_.size(); ++source) {
    for (size_t target = 0; target < pool_.size(); ++target) {
      if (source != target) pool_[target] = mix(pool_[target], hash_mix(pool_[source]));
    }
  }
  for (size_t i = pool_.size(); i < entropy.size(); ++i) {  // What the pool had no place for.
    for (uint32_t& word : pool_) word = mix(word, hash_mix(entropy[i]));
  }
}

uint32_t SeedSequence::hash_mix(uint32_t value) {
  value ^= hash_constant_;
  hash_constant_ *= 0x931e8875;
  value *= hash_constant_;
  return value ^ (value >> 16);
}

std::array<uint64_t, 4> SeedSequence::generate() const {
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

Pcg64::Pcg64(Uint128 seed) : Pcg64(sequence_of(seed)) {}

Pcg64::Pcg64(const SeedSequence& seed) {
  const std::array<uint64_t, 4> words = seed.generate();
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

}  // namespace atl::data
