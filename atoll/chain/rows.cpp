#include "atoll/chain/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"

namespace atl::chain {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"fp32", "bf16", "int8"};

const codec::Codec& codec_of(Precision precision) {
  static const std::array<std::unique_ptr<codec::Codec>, 3> codecs = {
      codec::make_codec(kNames[0]), codec::make_codec(kNames[1]), codec::make_codec(kNames[2])};
  return *codecs.at(static_cast<size_t>(precision));
}

}  // namespace

std::string_view name_of(Precision precision) { return kNames.at(static_cast<size_t>(precision)); }

std::optional<Precision> precision_of(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Precision>(found - kNames.begin());
}

Rows cut(Rows rows, int64_t begin, int64_t end) {
  const int64_t first = std::clamp(begin, rows.begin, rows.end());
  const int64_t last = std::clamp(end, first, rows.end());
  if (first == rows.begin && last == rows.end()) return rows;
  const auto of = [&]<typename T>(const std::vector<T>& column) {
    const auto size = static_cast<int64_t>(column.size() / rows.num_tokens);
    return std::vector<T>(column.begin() + (first - rows.begin) * size,
                          column.begin() + (last - rows.begin) * size);
  };
  return {.begin = first,
          .num_tokens = static_cast<uint32_t>(last - first),
          .precision = rows.precision,
          .rows_TC = of(rows.rows_TC),
          .ids = of(rows.ids),
          .outcomes = of(rows.outcomes),
          .orders = of(rows.orders)};
}

int64_t num_bytes(const Rows& rows) {
  size_t bytes = rows.rows_TC.size() + rows.ids.size() * sizeof rows.ids[0];
  for (const decoding::Order& order : rows.orders) bytes += decoding::num_bytes(order);
  return static_cast<int64_t>(bytes);
}

size_t row_bytes(Precision precision, int64_t hidden_size) {
  return codec_of(precision).max_encoded_bytes(static_cast<size_t>(hidden_size));
}

int64_t most_rows(Precision precision, int64_t hidden_size) {
  constexpr size_t kFrameBytes = size_t{2} << 20;
  return std::max<int64_t>(1,
                           static_cast<int64_t>(kFrameBytes / row_bytes(precision, hidden_size)));
}

Rows encode_rows(std::span<const float> values_TC, int64_t begin, int64_t hidden_size,
                 Precision precision) {
  const auto width = static_cast<size_t>(hidden_size);
  Rows rows{.begin = begin,
            .num_tokens = static_cast<uint32_t>(values_TC.size() / width),
            .precision = precision,
            .rows_TC = {}};
  rows.rows_TC.reserve(rows.num_tokens * row_bytes(precision, hidden_size));
  for (size_t i = 0; i < values_TC.size(); i += width) {
    codec_of(precision).encode(values_TC.subspan(i, width), rows.rows_TC);
  }
  return rows;
}

void decode_rows(const Rows& rows, std::span<float> values_TC) {
  const size_t width = values_TC.size() / rows.num_tokens;
  const size_t size = rows.rows_TC.size() / rows.num_tokens;
  if (size != row_bytes(rows.precision, static_cast<int64_t>(width))) {
    throw InputError(fmt::format("rows of {} bytes, where {} values in {} have {}", size, width,
                                 name_of(rows.precision),
                                 row_bytes(rows.precision, static_cast<int64_t>(width))));
  }
  for (size_t i = 0; i < rows.num_tokens; ++i) {
    codec_of(rows.precision)
        .decode(std::span(rows.rows_TC).subspan(i * size, size),
                values_TC.subspan(i * width, width));
  }
}

}  // namespace atl::chain
