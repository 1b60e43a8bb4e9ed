#pragma once
// Whole numbers through the entropy coder: each channel's table has a symbol for each number of a
// window, and one for all others, which travel as they are beside the symbols. Where numbers spread
// wide, a symbol is for 2^shift neighbours of them, and which of these it is travels in so many
// bits: they are all but equally frequent.
//
// Shapes: C = channels, T = tokens.
#include <algorithm>
#include <cstdint>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/kv/symbol_table.h"

namespace atl::kv {

class ValueTable {
 public:
  static constexpr int kMostShift = 11;

  /// Of the window and the shift with which what was seen costs least: counts[i] times the number
  /// lowest + i.
  ValueTable(int16_t lowest, std::span<const uint32_t> counts);

  int16_t lowest() const { return lowest_; }  // Of the window, over 2^shift.
  int shift() const { return shift_; }
  const SymbolTable& symbols() const { return symbols_; }
  /// The symbol of all numbers outside the window.
  uint8_t other() const { return static_cast<uint8_t>(symbols_.num_symbols() - 1); }
  uint8_t symbol_of(int16_t value) const {
    // Those below it come far above.
    const auto offset = static_cast<uint32_t>((value >> shift_) - lowest_);
    return static_cast<uint8_t>(std::min<uint32_t>(offset, other()));
  }
  /// What a number costs; and what all cost that were seen, as the constructor has them.
  double bits(int16_t value) const;
  double bits(int16_t lowest, std::span<const uint32_t> counts) const;
  bool operator==(const ValueTable&) const = default;

  /// Rounded: the table becomes what is read back.
  void write(Bytes& out);
  /// Throws InputError where it is none.
  static ValueTable read(ByteReader& in);

 private:
  ValueTable() = default;
  /// Of the window with most of these.
  ValueTable(int shift, int lowest, std::span<const uint32_t> counts);

  int16_t lowest_ = 0;
  uint8_t shift_ = 0;
  SymbolTable symbols_;  // At least two.
};

/// Appends them to `out`.
void encode_values(std::span<const int16_t> values_CT, std::span<const ValueTable> tables_C,
                   Bytes& out);

/// The next so many of `in`. Throws InputError where they are not there.
void decode_values(ByteReader& in, std::span<const ValueTable> tables_C,
                   std::span<int16_t> values_CT);

}  // namespace atl::kv
