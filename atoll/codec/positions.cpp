#include "atoll/codec/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

/// How a gap is divided; see the header.
struct Golomb {
  uint32_t m, b, u;

  Golomb(size_t num_positions, size_t num_kept) {
    constexpr uint64_t kLn2 = 45426;  // Of 65536.
    m = static_cast<uint32_t>(std::max<uint64_t>(1, num_positions * kLn2 / (num_kept << 16)));
    b = static_cast<uint32_t>(std::bit_width(m)) - 1;
    u = static_cast<uint32_t>((uint64_t{2} << b) - m);
  }
};

class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : begin_(out), at_(out) {}
  /// The low `count` bits, at most 32.
  void put(uint32_t bits, uint32_t count) {
    pending_ |= static_cast<uint64_t>(bits) << num_pending_;
    num_pending_ += count;
    if (num_pending_ < 32) return;
    store(static_cast<uint32_t>(pending_), at_);
    at_ += 4;
    pending_ >>= 32;
    num_pending_ -= 32;
  }
  /// Completes the last byte; returns the number of bytes.
  size_t finish() {
    for (; num_pending_ > 0; num_pending_ -= std::min(num_pending_, 8U)) {
      *at_++ = static_cast<std::byte>(pending_);
      pending_ >>= 8;
    }
    return static_cast<size_t>(at_ - begin_);
  }

 private:
  std::byte* begin_;
  std::byte* at_;
  uint64_t pending_ = 0;
  uint32_t num_pending_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  /// The next bits, from the lowest on: at least 57; zeros after the end.
  uint64_t peek() const {
    const size_t byte = at_ / 8;
    uint64_t window = 0;
    if (byte + 8 <= bytes_.size()) {
      window = load<uint64_t>(bytes_.data() + byte);
    } else if (byte < bytes_.size()) {
      std::memcpy(&window, bytes_.data() + byte, bytes_.size() - byte);
    }
    return window >> (at_ % 8);
  }
  void skip(size_t count) { at_ += count; }
  bool is_past_end() const { return at_ > 8 * bytes_.size(); }
  size_t num_bytes() const { return (at_ + 7) / 8; }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;  // In bits.
};

/// The number of zeros before the next one, which is read too; past the end there is none.
uint64_t read_unary(BitReader& reader) {
  uint64_t zeros = 0;
  while (!reader.is_past_end()) {
    const auto run = static_cast<uint32_t>(std::countr_zero(reader.peek()));
    if (run < 57) {
      reader.skip(run + 1);
      return zeros + run;
    }
    reader.skip(57);
    zeros += 57;
  }
  return zeros;
}

uint32_t read_truncated_binary(BitReader& reader, const Golomb& golomb) {
  const uint64_t window = reader.peek();
  const auto first = static_cast<uint32_t>(window & ((uint64_t{1} << golomb.b) - 1));
  const bool is_long = first >= golomb.u;
  reader.skip(golomb.b + (is_long ? 1 : 0));
  const auto last = static_cast<uint32_t>(window >> golomb.b & 1);
  return is_long ? 2 * first + last - golomb.u : first;
}

}  // namespace

size_t max_position_bytes(size_t num_positions, size_t num_kept) {
  if (num_kept == 0) return 0;
  const Golomb golomb(num_positions, num_kept);
  return ((num_positions - num_kept) / golomb.m + num_kept * (golomb.b + 2) + 7) / 8;
}

double position_bits(double share) {
  const Golomb golomb(1'000'000, static_cast<size_t>(std::llround(share * 1e6)));
  const double skipped = 1 - share;
  const double quotient = 1 / (1 - std::pow(skipped, golomb.m));  // Its bits, with the one.
  // P(g mod m < u), where one bit less is needed.
  const double is_short = (1 - std::pow(skipped, golomb.u)) * quotient;
  return share * (quotient + golomb.b + 1 - is_short);
}

size_t write_positions(std::span<const uint32_t> positions, size_t num_positions,
                       std::span<std::byte> out) {
  if (positions.empty()) return 0;
  const Golomb golomb(num_positions, positions.size());
  BitWriter writer(out.data());
  uint32_t next = 0;
  for (const uint32_t position : positions) {
    const uint32_t gap = position - next;
    next = position + 1;
    uint32_t quotient = gap / golomb.m;
    const uint32_t rest = gap % golomb.m;
    for (; quotient >= 31; quotient -= 31) writer.put(0, 31);
    writer.put(uint32_t{1} << quotient, quotient + 1);
    if (rest < golomb.u) {
      writer.put(rest, golomb.b);
    } else {
      const uint32_t moved = rest + golomb.u;
      writer.put(moved >> 1, golomb.b);
      writer.put(moved & 1, 1);
    }
  }
  return writer.finish();
}

size_t read_positions(std::span<const std::byte> bytes, size_t num_positions,
                      std::span<uint32_t> positions) {
  if (positions.empty()) return 0;
  const Golomb golomb(num_positions, positions.size());
  BitReader reader(bytes);
  uint64_t next = 0;
  for (uint32_t& position : positions) {
    const uint64_t quotient = read_unary(reader);
    next += quotient * golomb.m + read_truncated_binary(reader, golomb);
    if (reader.is_past_end() || next >= num_positions) {
      throw InputError(fmt::format("the positions of {} kept values among {} end after {}",
                                   positions.size(), num_positions, &position - positions.data()));
    }
    position = static_cast<uint32_t>(next++);
  }
  return reader.num_bytes();
}

}  // namespace atl::codec
