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

}  // namespace

ValueTable::ValueTable(int16_t lowest, std::span<const uint32_t> counts) {
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
  return symbols_.bits(symbol) + (symbol == other() ? kOtherBits : 0);
}

void ValueTable::write(Bytes& out) {
  ByteWriter writer;
  writer.put(lowest_);
  const Bytes bytes = writer.take();
  out.insert(out.end(), bytes.begin(), bytes.end());
  symbols_.write(out);
}

ValueTable ValueTable::read(ByteReader& in) {
  ValueTable table;
  table.lowest_ = in.get<int16_t>();
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
  for (size_t c = 0; c < tables_C.size(); ++c) {
    const ValueTable& table = tables_C[c];
    const auto values_T = values_CT.subspan(c * num_tokens, num_tokens);
    const auto symbols_T = std::span(symbols_CT).subspan(c * num_tokens, num_tokens);
    std::ranges::transform(values_T, symbols_T.begin(),
                           [&](int16_t value) { return table.symbol_of(value); });
    for (size_t t = 0; t < num_tokens; ++t) {
      if (symbols_T[t] == table.other()) others.push_back(values_T[t]);
    }
  }
  Bytes stream;
  encode_symbols(symbols_CT, symbols_of(tables_C), stream);
  ATOLL_CHECK(std::max(others.size(), stream.size()) <= std::numeric_limits<uint32_t>::max());
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(others.size())).put(static_cast<uint32_t>(stream.size()));
  writer.put_bytes(std::as_bytes(std::span(others))).put_bytes(stream);
  const Bytes bytes = writer.take();
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void decode_values(ByteReader& in, std::span<const ValueTable> tables_C,
                   std::span<int16_t> values_CT) {
  ATOLL_CHECK(!tables_C.empty() && values_CT.size() % tables_C.size() == 0);
  const size_t num_tokens = values_CT.size() / tables_C.size();
  const auto num_others = in.get<uint32_t>();
  const auto num_bytes = in.get<uint32_t>();
  ByteReader others(in.get_bytes(num_others * sizeof(int16_t)));
  std::vector<uint8_t> symbols_CT(values_CT.size());
  decode_symbols(in.get_bytes(num_bytes), symbols_of(tables_C), symbols_CT);
  for (size_t c = 0; c < tables_C.size(); ++c) {
    const ValueTable& table = tables_C[c];
    const auto values_T = values_CT.subspan(c * num_tokens, num_tokens);
    const auto symbols_T = std::span(symbols_CT).subspan(c * num_tokens, num_tokens);
    std::ranges::transform(symbols_T, values_T.begin(), [&](uint8_t symbol) {
      return static_cast<int16_t>(table.lowest() + symbol);
    });
    if (std::ranges::count(symbols_T, table.other()) == 0) continue;
    for (size_t t = 0; t < num_tokens; ++t) {
      if (symbols_T[t] == table.other()) values_T[t] = others.get<int16_t>();
    }
  }
  others.expect_end();
}

}  // namespace atl::kv
