#include "atoll/kv/entropy_coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::kv {
namespace {

/// Symbols of channels that spread more and more, and tables of others like them.
struct Sample {
  Sample(size_t num_channels, size_t num_tokens, uint64_t seed)
      : symbols(num_channels * num_tokens) {
    uint64_t drawn = 0;
    const auto draw = [&](size_t channel) {
      const double spread =
          0.2 + 4.0 * static_cast<double>(channel) / static_cast<double>(num_channels);
      const double value = 16 + spread * random_normal(seed, channel, ++drawn);
      return static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 31L));
    };
    for (size_t c = 0; c < num_channels; ++c) {
      std::vector<uint32_t> counts(32);
      for (int i = 0; i < 2000; ++i) ++counts[draw(c)];
      tables.emplace_back(counts);
      for (size_t t = 0; t < num_tokens; ++t) {
        const uint8_t symbol = draw(c);
        symbols[c * num_tokens + t] = symbol;
        ideal_bits += tables[c].bits(symbol);
      }
    }
  }
  std::vector<SymbolTable> tables;
  std::vector<uint8_t> symbols;
  double ideal_bits = 0;
};

TEST(EntropyCoder, WhateverTheNumberOfTokensAllComesBackInAboutTheLeastBits) {
  for (const size_t num_tokens : {1, 2, 15, 16, 17, 255, 1500}) {
    const Sample sample(40, num_tokens, num_tokens);
    Bytes bytes(3);  // It goes on behind what is there.
    encode_symbols(sample.symbols, sample.tables, bytes);
    std::vector<uint8_t> decoded(sample.symbols.size(), 255);
    decode_symbols(std::span(bytes).subspan(3), sample.tables, decoded);
    EXPECT_EQ(decoded, sample.symbols);
    // Sixteen states of 32 bits, and half a thousandth.
    EXPECT_LE(8.0 * static_cast<double>(bytes.size() - 3),
              sample.ideal_bits * 1.0005 + 16 * 32 + 16);
  }
}

TEST(EntropyCoder, WhatIsNoEncodingIsRefused) {
  const Sample sample(12, 50, 3);
  Bytes bytes;
  encode_symbols(sample.symbols, sample.tables, bytes);
  std::vector<uint8_t> decoded(sample.symbols.size());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_symbols(std::span(bytes).first(size), sample.tables, decoded), InputError);
  }
  Bytes longer = bytes;
  longer.resize(longer.size() + 2);
  EXPECT_THROW(decode_symbols(longer, sample.tables, decoded), InputError);
  int num_found = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    try {
      decode_symbols(flipped, sample.tables, decoded);
    } catch (const InputError&) {
      ++num_found;
    }
  }
  EXPECT_GE(num_found, static_cast<int>(8 * bytes.size()) - 1);
  const Sample other(12, 50, 4);
  EXPECT_THROW(decode_symbols(bytes, other.tables, decoded), InputError);
}

TEST(SymbolTable, EverySymbolHasAShareOfTheWhole) {
  for (const std::vector<uint32_t>& counts : {std::vector<uint32_t>{5},
                                              {0, 0, 0},
                                              {1, 0, 1'000'000, 0},
                                              {4'000'000'000, 4'000'000'000, 1},
                                              std::vector<uint32_t>(32, 7)}) {
    const SymbolTable table(counts);
    EXPECT_EQ(table.num_symbols(), counts.size());
    EXPECT_EQ(table.begin(0), 0U);
    EXPECT_EQ(table.begin(table.num_symbols()), kFrequencySum);
    for (size_t i = 0; i < counts.size(); ++i) EXPECT_GE(table.frequency(i), 1U);
  }
  const SymbolTable table(std::vector<uint32_t>{100, 300});
  EXPECT_NEAR(table.bits(0), 2, 0.01);
}

TEST(SymbolTable, WhatIsWrittenIsWhatIsUsed) {
  Sample sample(20, 1, 5);
  for (SymbolTable& table : sample.tables) {
    const SymbolTable before = table;
    Bytes bytes;
    table.write(bytes);
    EXPECT_EQ(bytes.size(), 1 + table.num_symbols());
    ByteReader in(bytes);
    EXPECT_EQ(SymbolTable::read(in), table);
    double lost = 0;  // Bits a symbol.
    for (size_t i = 0; i < table.num_symbols(); ++i) {
      lost += before.frequency(i) * (table.bits(i) - before.bits(i)) / kFrequencySum;
    }
    EXPECT_LT(lost, 0.01);
  }
  ByteReader none(std::span<const std::byte>{});
  EXPECT_THROW(SymbolTable::read(none), InputError);
  for (const auto& [size, step] : {std::pair(0, 200), {32, 1}}) {
    Bytes wrong(40, std::byte(step));
    wrong[0] = std::byte(size);
    ByteReader in(wrong);
    EXPECT_THROW(SymbolTable::read(in), InputError) << size;
  }
}

}  // namespace
}  // namespace atl::kv
