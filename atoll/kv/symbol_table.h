#pragma once
// How often each symbol of a channel comes, in 2^14ths: what an entropy coder reckons with on both
// sides. Whole numbers alone, so that the tables are the same on every machine.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"

namespace atl::kv {

constexpr int kFrequencyBits = 14;
constexpr uint32_t kFrequencySum = 1U << kFrequencyBits;
constexpr size_t kMaxSymbols = 256;

class SymbolTable {
 public:
  /// One symbol, 0, that costs nothing.
  SymbolTable() : SymbolTable(std::vector<uint32_t>{1}) {}
  /// Of symbols 0 to counts.size() - 1, at most kMaxSymbols, which were seen so often. Each gets
  /// 2^-14 at least, those that were never seen too: what is coded may be another text.
  explicit SymbolTable(std::span<const uint32_t> counts);
  explicit SymbolTable(const std::vector<uint32_t>& counts)
      : SymbolTable(std::span<const uint32_t>(counts)) {}

  size_t num_symbols() const { return cumulative_.size() - 1; }
  /// Where each symbol's share begins; one more than there are symbols, the last is kFrequencySum.
  std::span<const uint32_t> cumulative() const { return cumulative_; }
  uint32_t frequency(size_t symbol) const { return cumulative_[symbol + 1] - cumulative_[symbol]; }
  /// What a symbol costs.
  double bits(size_t symbol) const;
  bool operator==(const SymbolTable&) const = default;

  /// The shares in about 6 bits each: rounded, and the table becomes what is read back.
  void write(Bytes& out);
  /// Throws InputError where it is none.
  static SymbolTable read(ByteReader& in);

 private:
  std::vector<uint32_t> cumulative_;
};

}  // namespace atl::kv
