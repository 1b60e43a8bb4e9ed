#include "atoll/kv/tables.h"

#include <algorithm>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::kv {
namespace {

enum class Sharing : uint8_t { kOfEachChannel, kOfPlane };

/// How often which number was seen.
struct Histogram {
  int16_t lowest = 0;
  std::vector<uint32_t> counts{0};

  explicit Histogram(std::span<const int16_t> values) {
    if (values.empty()) return;
    const auto [least, most] = std::ranges::minmax(values);
    lowest = least;
    counts.assign(static_cast<size_t>(most - least) + 1, 0);
    for (const int16_t value : values) ++counts[static_cast<size_t>(value - least)];
  }
  double bits(const ValueTable& table) const { return table.bits(lowest, counts); }
};

/// Appends them to `out`: of each plane one for each channel, or one for all, whichever is fewer
/// bits in all.
std::vector<ValueTable> write_tables(std::span<const int16_t> values_PCT, size_t num_planes,
                                     size_t num_channels, Bytes& out) {
  const size_t num_tokens = values_PCT.size() / (num_planes * num_channels);
  std::vector<ValueTable> tables;
  tables.reserve(num_planes * num_channels);
  for (size_t plane = 0; plane < num_planes; ++plane) {
    const auto values_CT =
        values_PCT.subspan(plane * num_channels * num_tokens, num_channels * num_tokens);
    const Histogram all(values_CT);
    ValueTable one(all.lowest, all.counts);
    Bytes of_all;
    one.write(of_all);
    double bits = 8 * static_cast<double>(of_all.size()) + all.bits(one);
    std::vector<ValueTable> each;
    Bytes of_each;
    for (size_t c = 0; c < num_channels; ++c) {
      const Histogram own(values_CT.subspan(c * num_tokens, num_tokens));
      each.emplace_back(own.lowest, own.counts);
      each.back().write(of_each);
      bits -= own.bits(each.back());
    }
    bits -= 8 * static_cast<double>(of_each.size());
    const bool shares = bits < 0;
    out.push_back(static_cast<std::byte>(shares ? Sharing::kOfPlane : Sharing::kOfEachChannel));
    const Bytes& written = shares ? of_all : of_each;
    out.insert(out.end(), written.begin(), written.end());
    if (shares) each.assign(num_channels, one);
    tables.insert(tables.end(), each.begin(), each.end());
  }
  return tables;
}

std::vector<ValueTable> read_tables(ByteReader& in, size_t num_planes, size_t num_channels) {
  std::vector<ValueTable> tables;
  for (size_t plane = 0; plane < num_planes; ++plane) {
    switch (in.get<Sharing>()) {
      case Sharing::kOfEachChannel:
        for (size_t c = 0; c < num_channels; ++c) tables.push_back(ValueTable::read(in));
        break;
      case Sharing::kOfPlane:
        tables.insert(tables.end(), num_channels, ValueTable::read(in));
        break;
      default:
        throw InputError("tables of numbers that are shared in no known way");
    }
  }
  return tables;
}

}  // namespace

void encode_planes(std::span<const int16_t> values_PCT, size_t num_planes, size_t num_channels,
                   std::span<const ValueTable> tables_PC, Bytes& out) {
  std::vector<ValueTable> own;
  if (tables_PC.empty()) {
    own = write_tables(values_PCT, num_planes, num_channels, out);
    tables_PC = own;
  }
  ATOLL_CHECK(tables_PC.size() == num_planes * num_channels);
  encode_values(values_PCT, tables_PC, out);
}

void decode_planes(ByteReader& in, size_t num_planes, size_t num_channels,
                   std::span<const ValueTable> tables_PC, std::span<int16_t> values_PCT) {
  std::vector<ValueTable> own;
  if (tables_PC.empty()) {
    own = read_tables(in, num_planes, num_channels);
    tables_PC = own;
  }
  ATOLL_CHECK(tables_PC.size() == num_planes * num_channels);
  decode_values(in, tables_PC, values_PCT);
}

FittedTable fit_table(std::span<const int16_t> values_T) {
  const Histogram seen(values_T);
  ValueTable table(seen.lowest, seen.counts);
  const double bits = seen.bits(table);
  return {table, bits};
}

}  // namespace atl::kv
