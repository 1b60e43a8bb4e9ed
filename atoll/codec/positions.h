#pragma once
// Which k of n positions are meant, in nearly as few bits as there are: the gaps between them,
// Golomb-coded (Golomb 1966, "Run-length encodings"). Random positions cost within 3 % of the
// entropy H(k / n) per position up to k / n = 0.4, at a few nanoseconds per kept position; an
// arithmetic coder would save that rest for a step per position, kept or not.
//
// With m = max(1, floor(ln 2 * n / k)), a gap g (the skipped positions before a kept one) is
// g / m zeros and a one, then g mod m in truncated binary: with b = floor(log2 m) and
// u = 2^(b+1) - m, r < u takes b bits, else b + 1 bits hold r + u, the last of which goes last.
// Bits fill bytes from the lowest on; zeros complete the last one. m follows from n and k, which
// both sides know.
#include <cstddef>
#include <cstdint>
#include <span>

namespace atl::codec {

/// The most bytes for any k of n positions.
size_t max_position_bytes(size_t num_positions, size_t num_kept);

/// Expected bits per position when each is kept with that probability, in (0, 1], on its own.
double position_bits(double share);

/// Writes ascending positions below num_positions; returns the number of bytes. `out` has room for
/// max_position_bytes.
size_t write_positions(std::span<const uint32_t> positions, size_t num_positions,
                       std::span<std::byte> out);

/// Reads positions.size() of them, ascending and below num_positions; returns the number of bytes.
/// Throws InputError when `bytes` does not begin with what write_positions() makes of them.
size_t read_positions(std::span<const std::byte> bytes, size_t num_positions,
                      std::span<uint32_t> positions);

}  // namespace atl::codec
