#include "atoll/kv/symbol_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::kv {
namespace {

/// Shares of kFrequencySum in proportion to the counts, none below 1: largest remainders first,
/// equals by symbol. Without counts all are alike.
std::vector<uint32_t> shares_of(std::span<const uint32_t> counts) {
  const size_t size = counts.size();
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  if (total == 0) return shares_of(std::vector<uint32_t>(size, 1));
  std::vector<uint32_t> shares(size, 1);
  const uint64_t rest = kFrequencySum - size;  // Behind the 1 of each.
  std::vector<uint64_t> remainders(size);
  uint64_t given = 0;
  for (size_t i = 0; i < size; ++i) {
    const uint64_t product = counts[i] * rest;
    shares[i] += static_cast<uint32_t>(product / total);
    remainders[i] = product % total;
    given += product / total;
  }
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return remainders[a] != remainders[b] ? remainders[a] > remainders[b] : a < b;
  });
  for (size_t i = 0; given < rest; ++i, ++given) ++shares[order[i % size]];
  return shares;
}

// A share on the wire: its exponent and the two bits below its first one.
constexpr uint32_t kMostStep = 4 * kFrequencyBits;

uint8_t step_of(uint32_t share) {
  const auto exponent = static_cast<uint32_t>(std::bit_width(share) - 1);
  const uint32_t below = exponent >= 2 ? share >> (exponent - 2) & 3 : share << (2 - exponent) & 3;
  return static_cast<uint8_t>(4 * exponent + below);
}

uint32_t share_of(uint8_t step) {
  const uint32_t exponent = step / 4;
  const uint32_t top = 4 + step % 4;
  return exponent >= 2 ? top << (exponent - 2) : top >> (2 - exponent);
}

}  // namespace

SymbolTable::SymbolTable(std::span<const uint32_t> counts) {
  ATOLL_CHECK(!counts.empty() && counts.size() <= kMaxSymbols);
  num_symbols_ = static_cast<uint16_t>(counts.size());
  const std::vector<uint32_t> shares = shares_of(counts);
  uint32_t begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    begin += shares[i];
    begins_[i + 1] = static_cast<uint16_t>(begin);
  }
}

double SymbolTable::bits(size_t symbol) const {
  return kFrequencyBits - std::log2(static_cast<double>(frequency(symbol)));
}

void SymbolTable::write(Bytes& out) {
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(num_symbols() - 1));
  std::vector<uint32_t> rounded;
  for (size_t i = 0; i < num_symbols(); ++i) {
    const uint8_t step = step_of(frequency(i));
    writer.put(step);
    rounded.push_back(share_of(step));
  }
  const Bytes bytes = writer.take();
  out.insert(out.end(), bytes.begin(), bytes.end());
  *this = SymbolTable(rounded);
}

SymbolTable SymbolTable::read(ByteReader& in) {
  const size_t size = size_t{in.get<uint8_t>()} + 1;
  if (size > kMaxSymbols) throw InputError("a table of symbols has too many");
  std::vector<uint32_t> shares;
  for (size_t i = 0; i < size; ++i) {
    const auto step = in.get<uint8_t>();
    if (step > kMostStep) throw InputError("a table of symbols has a share beyond all");
    shares.push_back(share_of(step));
  }
  return SymbolTable(shares);
}

}  // namespace atl::kv
