#pragma once
// How often each symbol of a channel comes, in 2^14ths: what an entropy coder reckons with on both
// sides. Whole numbers alone, so that the tables are the same on every machine.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"

namespace atl::kv {

constexpr int kFrequencyBits = 14;
constexpr uint32_t kFrequencySum = 1U << kFrequencyBits;
/// So few that a decoder compares with all of them at once, instead of looking one up.
constexpr size_t kMaxSymbols = 32;

class SymbolTable {
 public:
  /// One symbol, 0, that costs nothing.
  SymbolTable() { begins_[1] = kFrequencySum; }
  /// Of symbols 0 to counts.size() - 1, at most kMaxSymbols, which were seen so often. Each gets
  /// 2^-14 at least, those that were never seen too: what is coded may be another text.
  explicit SymbolTable(std::span<const uint32_t> counts);
  explicit SymbolTable(const std::vector<uint32_t>& counts)
      : SymbolTable(std::span<const uint32_t>(counts)) {}

  size_t num_symbols() const { return num_symbols_; }
  /// Where the symbol's share begins; that of num_symbols() is kFrequencySum.
  uint32_t begin(size_t symbol) const { return begins_[symbol]; }
  uint32_t frequency(size_t symbol) const { return begins_[symbol + 1] - begins_[symbol]; }
  /// What a symbol costs.
  double bits(size_t symbol) const;
  bool operator==(const SymbolTable&) const = default;

  /// The shares in a byte each: rounded, and the table becomes what is read back.
  void write(Bytes& out);
  /// Throws InputError where it is none.
  static SymbolTable read(ByteReader& in);

 private:
  uint16_t num_symbols_ = 1;
  std::array<uint16_t, kMaxSymbols + 1> begins_{};
};

}  // namespace atl::kv
