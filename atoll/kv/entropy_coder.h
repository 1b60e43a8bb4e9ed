#pragma once
// Symbols to as many bits as they are unlikely, and back: a range coder whose state is a whole
// number (rANS; Duda 2013, arXiv:1311.2540), 16 of them by turns in one stream of words (Giesen
// 2014, arXiv:1402.3392), so that no symbol waits for the one before it. The bytes are the same on
// every machine.
//
// Shapes: C = channels, each with a table of its own, T = tokens.
#include <cstdint>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/kv/symbol_table.h"

namespace atl::kv {

/// Appends them to `out`: symbols_CT has those of each channel one behind the other, each below
/// its table's num_symbols().
void encode_symbols(std::span<const uint8_t> symbols_CT, std::span<const SymbolTable> tables_C,
                    Bytes& out);

/// All of `bytes`. Throws InputError where they are no encoding of so many symbols by these tables:
/// one that was cut short or changed is found, all but certainly.
void decode_symbols(std::span<const std::byte> bytes, std::span<const SymbolTable> tables_C,
                    std::span<uint8_t> symbols_CT);

}  // namespace atl::kv
