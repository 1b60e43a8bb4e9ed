#include "atoll/codec/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

constexpr size_t kManyPositions = 2048;  // For which a table pays.

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
  explicit BitWriter(std::span<std::byte> out)
      : begin_(out.data()), at_(out.data()), end_(out.data() + out.size()) {}
  /// The low `count` bits, at most 56; the others are zero.
  void put(uint64_t bits, uint32_t count) {
    pending_ |= bits << num_pending_;
    num_pending_ += count;
    // Whole words: what is not whole bytes of one is overwritten by the next.
    if (end_ - at_ >= 8) {
      store(pending_, at_);
      at_ += num_pending_ / 8;
      pending_ >>= num_pending_ & ~7U;
      num_pending_ &= 7;
    } else {
      for (; num_pending_ >= 8; num_pending_ -= 8) put_byte();
    }
  }
  /// Completes the last byte; returns the number of bytes.
  size_t finish() {
    if (std::exchange(num_pending_, 0) > 0) put_byte();
    return static_cast<size_t>(at_ - begin_);
  }

 private:
  void put_byte() {
    *at_++ = static_cast<std::byte>(pending_);
    pending_ >>= 8;
  }

  std::byte* begin_;
  std::byte* at_;
  std::byte* end_;
  uint64_t pending_ = 0;
  uint32_t num_pending_ = 0;  // Below 8.
};

/// As if zeros followed the end.
class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  /// The next bits, from the lowest on: at least 56.
  uint64_t peek() {
    uint64_t more = 0;
    if (next_ + 8 <= bytes_.size()) {
      more = load<uint64_t>(bytes_.data() + next_);
    } else if (next_ < bytes_.size()) {
      std::memcpy(&more, bytes_.data() + next_, bytes_.size() - next_);
    }
    window_ |= more << num_bits_;  // Those of the last, broken byte come again.
    next_ += (63 - num_bits_) / 8;
    num_bits_ |= 56;
    return window_;
  }
  /// At most 56, that were looked at.
  void skip(uint32_t count) {
    window_ >>= count;
    num_bits_ -= count;
  }
  /// The next look is at bits that are there.
  bool has_a_word() const { return next_ + 8 <= bytes_.size(); }
  bool is_past_end() const { return 8 * next_ - num_bits_ > 8 * bytes_.size(); }
  size_t num_bytes() const { return (8 * next_ - num_bits_ + 7) / 8; }
  /// Whether the bits of the last byte that were not skipped are zero.
  bool is_padded() const {
    const size_t used = (8 * next_ - num_bits_) % 8;
    return used == 0 || static_cast<uint32_t>(bytes_[num_bytes() - 1]) >> used == 0;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t next_ = 0;        // Byte.
  uint64_t window_ = 0;    // The bits before it that were not skipped, and perhaps some of it.
  uint32_t num_bits_ = 0;  // At most 63.
};

/// The number of zeros before the next one, which is read too; past the end there is none.
uint64_t read_unary(BitReader& reader) {
  uint64_t zeros = 0;
  while (!reader.is_past_end()) {
    const auto run = static_cast<uint32_t>(std::countr_zero(reader.peek()));
    if (run < 56) {
      reader.skip(run + 1);
      return zeros + run;
    }
    reader.skip(56);
    zeros += 56;
  }
  return zeros;
}

/// A number below golomb.m from the next bits, of which `length` are used.
struct Remainder {
  uint32_t value, length;

  Remainder(uint64_t bits, const Golomb& golomb) {
    const auto first = static_cast<uint32_t>(bits & ((uint64_t{1} << golomb.b) - 1));
    const auto last = static_cast<uint32_t>(bits >> golomb.b & 1);
    const uint32_t is_long = first >= golomb.u ? 1 : 0;
    value =
        first + ((0 - is_long) & (first + last - golomb.u));  // No branch: nobody can predict it.
    length = golomb.b + is_long;
  }
};

/// How many positions are skipped before the next one that is meant.
uint64_t read_gap(BitReader& reader, const Golomb& golomb) {
  const uint64_t bits = reader.peek();
  const auto zeros = static_cast<uint32_t>(std::countr_zero(bits));
  if (zeros < 56 - 33) {  // Nearly always: all of it has been looked at.
    const Remainder rest(bits >> (zeros + 1), golomb);
    reader.skip(zeros + 1 + rest.length);
    return uint64_t{zeros} * golomb.m + rest.value;
  }
  const uint64_t quotient = read_unary(reader);
  const Remainder rest(reader.peek(), golomb);
  reader.skip(rest.length);
  return quotient * golomb.m + rest.value;
}

struct Code {
  uint64_t bits = 0;
  uint32_t length = 0;
};

/// A number below golomb.m, as Remainder reads it.
Code code_of_rest(uint32_t rest, const Golomb& golomb) {
  const uint32_t is_long = rest >= golomb.u ? 1 : 0;
  const uint64_t moved = rest + ((0 - is_long) & golomb.u);
  const uint64_t last = moved & is_long;
  return {moved >> is_long | last << golomb.b, golomb.b + is_long};
}

void put_gap(BitWriter& writer, uint32_t gap, const Golomb& golomb) {
  uint32_t quotient = gap / golomb.m;
  for (; quotient >= 31; quotient -= 31) writer.put(0, 31);
  writer.put(uint64_t{1} << quotient, quotient + 1);
  const Code rest = code_of_rest(gap % golomb.m, golomb);
  writer.put(rest.bits, rest.length);
}

/// The codes of short gaps, so that two are written at once.
class CodeTable {
 public:
  explicit CodeTable(const Golomb& golomb) {
    for (uint32_t gap = 0; gap < codes_.size(); ++gap) {
      const uint32_t quotient = gap / golomb.m;
      const Code rest = code_of_rest(gap % golomb.m, golomb);
      if (quotient + 1 + rest.length > kLongest) continue;
      codes_[gap] = {(uint64_t{1} | rest.bits << 1) << quotient, quotient + 1 + rest.length};
    }
  }
  /// Of two gaps; of length 0 where one is not short.
  Code pair(uint32_t first, uint32_t second) const {
    if (std::max(first, second) >= codes_.size()) return {};
    const Code& a = codes_[first];
    const Code& b = codes_[second];
    if (a.length == 0 || b.length == 0) return {};
    return {a.bits | b.bits << a.length, a.length + b.length};
  }

 private:
  static constexpr uint32_t kLongest = 28;  // Two of them in one put().
  std::array<Code, 64> codes_;              // Of length 0: it is longer.
};

/// What the next bits say where gaps are short: two of them at one look.
class PairTable {
 public:
  static constexpr uint32_t kBits = 11;
  static constexpr uint32_t kLargestM = 8;
  struct Pair {
    uint8_t num_bits = 0;  // 0: they are longer than what is looked at.
    uint8_t gaps[2] = {};
  };

  /// The thread's, made for `golomb`.
  static const PairTable& of(const Golomb& golomb) {
    thread_local PairTable table;
    if (table.m_ != golomb.m) table.fill(golomb);
    return table;
  }
  const Pair& at(uint64_t bits) const { return pairs_[bits & ((1U << kBits) - 1)]; }

 private:
  void fill(const Golomb& golomb) {
    m_ = golomb.m;
    for (uint32_t bits = 0; bits < pairs_.size(); ++bits) {
      Pair pair;
      uint32_t used = 0;
      for (uint8_t& gap : pair.gaps) {
        const auto zeros = static_cast<uint32_t>(std::countr_zero(uint64_t{bits} >> used));
        if (used + zeros + golomb.b + 2 > kBits) {
          used = 0;
          break;
        }
        const Remainder rest(bits >> (used + zeros + 1), golomb);
        gap = static_cast<uint8_t>(zeros * golomb.m + rest.value);
        used += zeros + 1 + rest.length;
      }
      pair.num_bits = static_cast<uint8_t>(used);
      pairs_[bits] = pair;
    }
  }

  uint32_t m_ = 0;
  std::array<Pair, size_t{1} << kBits> pairs_;
};

/// Reads pairs as long as they are short and lie within; returns how many positions those are.
/// `next` is the one behind.
size_t read_pairs(BitReader& reader, const Golomb& golomb, size_t num_positions,
                  std::span<uint32_t> positions, uint64_t& next) {
  const PairTable& table = PairTable::of(golomb);
  size_t i = 0;
  while (i + 1 < positions.size() && reader.has_a_word()) {
    const PairTable::Pair pair = table.at(reader.peek());
    const uint64_t first = next + pair.gaps[0];
    const uint64_t second = first + 1 + pair.gaps[1];
    if (pair.num_bits == 0 || second >= num_positions) break;
    reader.skip(pair.num_bits);
    positions[i++] = static_cast<uint32_t>(first);
    positions[i++] = static_cast<uint32_t>(second);
    next = second + 1;
  }
  return i;
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
  BitWriter writer(out);
  uint32_t next = 0;
  const auto gap_before = [&](uint32_t position) {
    const uint32_t gap = position - next;
    next = position + 1;
    return gap;
  };
  size_t i = 0;
  if (positions.size() >= kManyPositions) {
    const CodeTable table(golomb);
    for (; i + 1 < positions.size(); i += 2) {
      const uint32_t first = gap_before(positions[i]);
      const uint32_t second = gap_before(positions[i + 1]);
      if (const Code code = table.pair(first, second); code.length > 0) {
        writer.put(code.bits, code.length);
      } else {
        put_gap(writer, first, golomb);
        put_gap(writer, second, golomb);
      }
    }
  }
  for (; i < positions.size(); ++i) put_gap(writer, gap_before(positions[i]), golomb);
  return writer.finish();
}

size_t read_positions(std::span<const std::byte> bytes, size_t num_positions,
                      std::span<uint32_t> positions) {
  if (positions.empty()) return 0;
  const Golomb golomb(num_positions, positions.size());
  BitReader reader(bytes);
  uint64_t next = 0;
  const bool has_pairs = golomb.m <= PairTable::kLargestM && positions.size() >= kManyPositions;
  for (size_t i = 0; i < positions.size();) {
    if (has_pairs) i += read_pairs(reader, golomb, num_positions, positions.subspan(i), next);
    if (i == positions.size()) break;
    next += read_gap(reader, golomb);
    if (reader.is_past_end() || next >= num_positions) {
      throw InputError(fmt::format("the positions of {} kept values among {} end after {}",
                                   positions.size(), num_positions, i));
    }
    positions[i++] = static_cast<uint32_t>(next++);
  }
  if (!reader.is_padded()) {
    throw InputError(fmt::format("the last byte behind the positions of {} kept values is not zero",
                                 positions.size()));
  }
  return reader.num_bytes();
}

}  // namespace atl::codec
