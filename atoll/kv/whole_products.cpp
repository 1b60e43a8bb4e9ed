#include "atoll/kv/whole_products.h"

#include <algorithm>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace atl::kv {
namespace {

constexpr size_t kTile = 12;
constexpr size_t kTokens = TokenBlock::kTokens;

/// What a tile of kTile outputs makes of these pairs of inputs: out (kTile, T).
using Kernel = void (*)(const int16_t* tile, const TokenBlock& block,
                        std::span<const uint32_t> pairs, int32_t* out);

ATOLL_CLONES void interleave(const int16_t* even, const int16_t* odd, size_t count, int16_t* to) {
  for (size_t t = 0; t < count; ++t) {
    to[2 * t] = even[t];
    to[2 * t + 1] = odd[t];
  }
}

void multiply_plain(const int16_t* tile, const TokenBlock& block, std::span<const uint32_t> pairs,
                    int32_t* out) {
  std::fill_n(out, kTile * kTokens, 0);
  for (const uint32_t pair : pairs) {
    const int16_t* const x = block.pair(pair);
    for (size_t m = 0; m < kTile; ++m) {
      const int16_t* const weights = tile + (pair * kTile + m) * 2;
      for (size_t t = 0; t < kTokens; ++t) {
        const int32_t sum = weights[0] * x[2 * t] + weights[1] * x[2 * t + 1];
        int32_t& to = out[m * kTokens + t];
        // Without signs, as what is beyond 32 bits is lost in registers too.
        to = static_cast<int32_t>(static_cast<uint32_t>(to) + static_cast<uint32_t>(sum));
      }
    }
  }
}

#if defined(__x86_64__)

int32_t weights_of(const int16_t* at) {
  int32_t both = 0;
  std::memcpy(&both, at, sizeof both);
  return both;
}

__attribute__((target("avx2"))) void multiply_avx2(const int16_t* tile, const TokenBlock& block,
                                                   std::span<const uint32_t> pairs, int32_t* out) {
  constexpr size_t kRows = 6;
  constexpr size_t kLanes = 8;
  for (size_t t = 0; t < kTokens; t += 2 * kLanes) {
    for (size_t first = 0; first < kTile; first += kRows) {
      __m256i sums[kRows][2];
#pragma GCC unroll 6
      for (size_t m = 0; m < kRows; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
      for (const uint32_t pair : pairs) {
        const auto* const x = reinterpret_cast<const __m256i*>(block.pair(pair) + 2 * t);
        const __m256i x0 = _mm256_loadu_si256(x);
        const __m256i x1 = _mm256_loadu_si256(x + 1);
        const int16_t* const weights = tile + (pair * kTile + first) * 2;
#pragma GCC unroll 6
        for (size_t m = 0; m < kRows; ++m) {
          const __m256i both = _mm256_set1_epi32(weights_of(weights + 2 * m));
          sums[m][0] = _mm256_add_epi32(sums[m][0], _mm256_madd_epi16(x0, both));
          sums[m][1] = _mm256_add_epi32(sums[m][1], _mm256_madd_epi16(x1, both));
        }
      }
#pragma GCC unroll 6
      for (size_t m = 0; m < kRows; ++m) {
        auto* const to = reinterpret_cast<__m256i*>(out + (first + m) * kTokens + t);
        _mm256_storeu_si256(to, sums[m][0]);
        _mm256_storeu_si256(to + 1, sums[m][1]);
      }
    }
  }
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) void multiply_avx512(
    const int16_t* tile, const TokenBlock& block, std::span<const uint32_t> pairs, int32_t* out) {
  static_assert(kTokens == 32, "two registers");
  __m512i sums[kTile][2];
#pragma GCC unroll 12
  for (size_t m = 0; m < kTile; ++m) sums[m][0] = sums[m][1] = _mm512_setzero_si512();
  for (const uint32_t pair : pairs) {
    const int16_t* const x = block.pair(pair);
    const __m512i x0 = _mm512_loadu_si512(x);
    const __m512i x1 = _mm512_loadu_si512(x + kTokens);
    const int16_t* const weights = tile + pair * kTile * 2;
#pragma GCC unroll 12
    for (size_t m = 0; m < kTile; ++m) {
      const __m512i both = _mm512_set1_epi32(weights_of(weights + 2 * m));
      sums[m][0] = _mm512_dpwssd_epi32(sums[m][0], x0, both);
      sums[m][1] = _mm512_dpwssd_epi32(sums[m][1], x1, both);
    }
  }
#pragma GCC unroll 12
  for (size_t m = 0; m < kTile; ++m) {
    _mm512_storeu_si512(out + m * kTokens, sums[m][0]);
    _mm512_storeu_si512(out + m * kTokens + kTokens / 2, sums[m][1]);
  }
}

#endif

Kernel kernel_of(Registers registers) {
#if defined(__x86_64__)
  if (registers == Registers::kAvx512) return multiply_avx512;
  if (registers == Registers::kAvx2) return multiply_avx2;
#endif
  ATOLL_CHECK(registers == Registers::kPlain);
  return multiply_plain;
}

}  // namespace

std::span<const Registers> supported_registers() {
  static const std::vector<Registers> all = [] {
    std::vector<Registers> found{Registers::kPlain};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) found.push_back(Registers::kAvx2);
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni")) {
      found.push_back(Registers::kAvx512);
    }
#endif
    return found;
  }();
  return all;
}

TokenBlock::TokenBlock(size_t num_inputs)
    : num_inputs_(num_inputs), pairs_((num_inputs + 1) / 2 * 2 * kTokens) {}

void TokenBlock::take(std::span<const int16_t> values_KT, size_t first, size_t count) {
  const size_t num_tokens = values_KT.size() / num_inputs_;
  ATOLL_CHECK(count <= kTokens && first + count <= num_tokens);
  if (count < kTokens) std::ranges::fill(pairs_, int16_t{0});
  const std::vector<int16_t> none(count);
  for (size_t k = 0; k < num_inputs_; k += 2) {
    const int16_t* const even = values_KT.data() + k * num_tokens + first;
    const int16_t* const odd = k + 1 < num_inputs_ ? even + num_tokens : none.data();
    interleave(even, odd, count, pairs_.data() + k * kTokens);
  }
}

std::vector<uint32_t> TokenBlock::pairs_with_some() const {
  std::vector<uint32_t> found;
  for (size_t i = 0; i < num_pairs(); ++i) {
    int16_t any = 0;
    for (size_t t = 0; t < 2 * kTokens; ++t) any |= pair(i)[t];
    if (any != 0) found.push_back(static_cast<uint32_t>(i));
  }
  return found;
}

WholeMatrix::WholeMatrix(std::span<const int16_t> values_MK, size_t num_outputs)
    : num_outputs_(num_outputs), num_inputs_(values_MK.size() / num_outputs) {
  static_assert(kTileOutputs == kTile);
  ATOLL_CHECK(values_MK.size() == num_outputs_ * num_inputs_);
  const size_t num_tiles = (num_outputs + kTile - 1) / kTile;
  tiles_.resize(num_tiles * kTile * ((num_inputs_ + 1) / 2) * 2);
  for (size_t m = 0; m < num_outputs; ++m) {
    for (size_t k = 0; k < num_inputs_; ++k) tiles_[place(m, k)] = values_MK[m * num_inputs_ + k];
  }
}

void WholeMatrix::multiply(const TokenBlock& block, size_t num_outputs,
                           std::vector<int32_t>& out_MT, Registers registers) const {
  const Kernel kernel = kernel_of(registers);
  const size_t num_pairs = (num_inputs_ + 1) / 2;
  ATOLL_CHECK(num_outputs <= num_outputs_ && block.num_pairs() <= num_pairs);
  const size_t num_tiles = (num_outputs + kTile - 1) / kTile;
  out_MT.resize(num_tiles * kTile * kTokens);
  const std::vector<uint32_t> pairs = block.pairs_with_some();
  for (size_t tile = 0; tile < num_tiles; ++tile) {
    kernel(tiles_.data() + tile * num_pairs * kTile * 2, block, pairs,
           out_MT.data() + tile * kTile * kTokens);
  }
}

}  // namespace atl::kv
