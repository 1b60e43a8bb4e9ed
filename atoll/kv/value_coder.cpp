#include "atoll/kv/value_coder.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/kv/entropy_coder.h"

namespace atl::kv {
namespace {

constexpr size_t kMostInWindow = kMaxSymbols - 1;
constexpr double kOtherBits = 16;

std::vector<SymbolTable> symbols_of(std::span<const ValueTable> tables_C) {
  std::vector<SymbolTable> symbols;
  symbols.reserve(tables_C.size());
  for (const ValueTable& table : tables_C) symbols.push_back(table.symbols());
  return symbols;
}

/// Few bits of many numbers, close together.
class BitWriter {
 public:
  void put(uint32_t value, int count) {
    held_ |= uint64_t{value} << num_held_;
    num_held_ += count;
    for (; num_held_ >= 8; num_held_ -= 8, held_ >>= 8) {
      bytes_.push_back(static_cast<std::byte>(held_));
    }
  }
  Bytes take() {
    if (num_held_ > 0) bytes_.push_back(static_cast<std::byte>(held_));
    return std::move(bytes_);
  }

 private:
  Bytes bytes_;
  uint64_t held_ = 0;
  int num_held_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint32_t get(int count) {
    for (; num_held_ < count; num_held_ += 8) held_ |= bytes_.get<uint8_t>() << num_held_;
    const uint32_t value = held_ & ((1U << count) - 1);
    held_ >>= count;
    num_held_ -= count;
    return value;
  }
  /// All but the last byte's last bits.
  void expect_end() const { bytes_.expect_end(); }

 private:
  ByteReader bytes_;
  uint32_t held_ = 0;
  int num_held_ = 0;
};

}  // namespace

ValueTable::ValueTable(int16_t lowest, std::span<const uint32_t> counts) {
  double least = std::numeric_limits<double>::infinity();
  for (int shift = 0; shift <= kMostShift; ++shift) {
    const int first = lowest >> shift;
    std::vector<uint32_t> coarse;
    for (size_t i = 0; i < counts.size(); ++i) {
      const auto at = static_cast<size_t>(((lowest + static_cast<int>(i)) >> shift) - first);
      if (at >= coarse.size()) coarse.resize(at + 1);
      coarse[at] += counts[i];
    }
    const ValueTable table(shift, first, coarse);
    const double cost = table.bits(lowest, counts);
    if (cost < least) {
      least = cost;
      *this = table;
    }
    if (coarse.size() <= kMostInWindow / 2) return;  // Coarser ones have nothing to win.
  }
}

ValueTable::ValueTable(int shift, int lowest, std::span<const uint32_t> counts)
    : shift_(static_cast<uint8_t>(shift)) {
  ATOLL_CHECK(!counts.empty());
  const size_t size = std::min(counts.size(), kMostInWindow);
  uint64_t inside =
      std::accumulate(counts.begin(), counts.begin() + std::ssize(counts.first(size)), uint64_t{0});
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  uint64_t most = inside;
  size_t first = 0;
  for (size_t i = size; i < counts.size(); ++i) {
    inside += uint64_t{counts[i]} - counts[i - size];
    if (inside <= most) continue;
    most = inside;
    first = i + 1 - size;
  }
  std::vector<uint32_t> window(counts.begin() + static_cast<std::ptrdiff_t>(first),
                               counts.begin() + static_cast<std::ptrdiff_t>(first + size));
  // Numbers at the ends that were never seen need no symbol of their own.
  while (window.size() > 1 && window.back() == 0) window.pop_back();
  const auto seen = std::ranges::find_if(window, [](uint32_t count) { return count > 0; });
  const auto unseen = seen == window.end() ? 0 : seen - window.begin();
  window.erase(window.begin(), window.begin() + unseen);
  lowest_ = static_cast<int16_t>(lowest + static_cast<int>(first) + static_cast<int>(unseen));
  window.push_back(
      static_cast<uint32_t>(std::min<uint64_t>(all - most, std::numeric_limits<uint32_t>::max())));
  symbols_ = SymbolTable(window);
}

double ValueTable::bits(int16_t value) const {
  const uint8_t symbol = symbol_of(value);
  return symbols_.bits(symbol) + (symbol == other() ? kOtherBits : shift_);
}

double ValueTable::bits(int16_t lowest, std::span<const uint32_t> counts) const {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    sum += counts[i] * bits(static_cast<int16_t>(lowest + static_cast<int>(i)));
  }
  return sum;
}

void ValueTable::write(Bytes& out) {
  ByteWriter writer;
  writer.put(lowest_).put(shift_);
  const Bytes bytes = writer.take();
  out.insert(out.end(), bytes.begin(), bytes.end());
  symbols_.write(out);
}

ValueTable ValueTable::read(ByteReader& in) {
  ValueTable table;
  table.lowest_ = in.get<int16_t>();
  table.shift_ = in.get<uint8_t>();
  if (table.shift_ > kMostShift) throw InputError("a table of numbers has too coarse ones");
  table.symbols_ = SymbolTable::read(in);
  if (table.symbols_.num_symbols() < 2) throw InputError("a table of numbers has none");
  return table;
}

void encode_values(std::span<const int16_t> values_CT, std::span<const ValueTable> tables_C,
                   Bytes& out) {
  ATOLL_CHECK(!tables_C.empty() && values_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = values_CT.size() / tables_C.size();
  std::vector<uint8_t> symbols_CT(values_CT.size());
  std::vector<int16_t> others;
  BitWriter rests;
  for (size_t c = 0; c < tables_C.size(); ++c) {
    const ValueTable& table = tables_C[c];
    const auto values_T = values_CT.subspan(c * num_tokens, num_tokens);
    const auto symbols_T = std::span(symbols_CT).subspan(c * num_tokens, num_tokens);
    std::ranges::transform(values_T, symbols_T.begin(),
                           [&](int16_t value) { return table.symbol_of(value); });
    for (size_t t = 0; t < num_tokens; ++t) {
      if (symbols_T[t] == table.other()) {
        others.push_back(values_T[t]);
      } else if (table.shift() > 0) {
        rests.put(static_cast<uint16_t>(values_T[t]) & ((1U << table.shift()) - 1), table.shift());
      }
    }
  }
  Bytes stream;
  encode_symbols(symbols_CT, symbols_of(tables_C), stream);
  const Bytes packed = rests.take();
  ATOLL_CHECK(std::max({others.size(), packed.size(), stream.size()}) <=
              std::numeric_limits<uint32_t>::max());
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(others.size())).put(static_cast<uint32_t>(packed.size()));
  writer.put(static_cast<uint32_t>(stream.size()));
  writer.put_bytes(std::as_bytes(std::span(others))).put_bytes(packed).put_bytes(stream);
  const Bytes bytes = writer.take();
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void decode_values(ByteReader& in, std::span<const ValueTable> tables_C,
                   std::span<int16_t> values_CT) {
  ATOLL_CHECK(!tables_C.empty() && values_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = values_CT.size() / tables_C.size();
  const auto num_others = in.get<uint32_t>();
  const auto num_rest_bytes = in.get<uint32_t>();
  const auto num_bytes = in.get<uint32_t>();
  ByteReader others(in.get_bytes(num_others * sizeof(int16_t)));
  BitReader rests(in.get_bytes(num_rest_bytes));
  std::vector<uint8_t> symbols_CT(values_CT.size());
  decode_symbols(in.get_bytes(num_bytes), symbols_of(tables_C), symbols_CT);
  for (size_t c = 0; c < tables_C.size(); ++c) {
    const ValueTable& table = tables_C[c];
    const int shift = table.shift();
    const auto values_T = values_CT.subspan(c * num_tokens, num_tokens);
    const auto symbols_T = std::span(symbols_CT).subspan(c * num_tokens, num_tokens);
    std::ranges::transform(symbols_T, values_T.begin(), [&](uint8_t symbol) {
      return static_cast<int16_t>((table.lowest() + symbol) << shift);
    });
    if (shift == 0 && std::ranges::count(symbols_T, table.other()) == 0) continue;
    for (size_t t = 0; t < num_tokens; ++t) {
      if (symbols_T[t] == table.other()) {
        values_T[t] = others.get<int16_t>();
      } else if (shift > 0) {
        values_T[t] = static_cast<int16_t>(values_T[t] | static_cast<int>(rests.get(shift)));
      }
    }
  }
  others.expect_end();
  rests.expect_end();
}

}  // namespace atl::kv
