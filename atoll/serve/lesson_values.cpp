#include "atoll/serve/lesson_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "atoll/base/error.h"
#include "atoll/chain/rows.h"

namespace atl::serve {
namespace {

constexpr int64_t kPartValues = int64_t{1} << 18;  // 1 MiB.

void require_finite(std::span<const float> values, const char* what) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
  throw InputError(fmt::format("{} are not finite", what));
}

}  // namespace

std::vector<ValuesPart> parts_of(const at::Tensor& values_P) {
  const std::span values(values_P.const_data_ptr<float>(), static_cast<size_t>(values_P.numel()));
  require_finite(values, "the values of an adapter, or their gradients,");
  std::vector<ValuesPart> parts;
  for (int64_t begin = 0; begin < values_P.numel(); begin += kPartValues) {
    const auto size = static_cast<size_t>(std::min(kPartValues, values_P.numel() - begin));
    const auto bytes = std::as_bytes(values.subspan(static_cast<size_t>(begin), size));
    parts.push_back({.begin = begin, .bytes = {bytes.begin(), bytes.end()}});
  }
  return parts;
}

int64_t put_values(const Bytes& bytes, int64_t begin, const at::Tensor& values_P) {
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(float));
  if (begin < 0 || begin > values_P.numel() || count > values_P.numel() - begin) {
    throw InputError(
        fmt::format("{} values from {} on, where there are {}", count, begin, values_P.numel()));
  }
  if (count == 0) return 0;
  std::vector<float> values(static_cast<size_t>(count));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  require_finite(values, "the values of an adapter, or their gradients,");
  std::ranges::copy(values, values_P.mutable_data_ptr<float>() + begin);
  return count;
}

std::vector<chain::Rows> rows_of(const at::Tensor& x_BTC, chain::Precision precision) {
  const at::Tensor x = x_BTC.contiguous();
  const int64_t width = x.size(2);
  const int64_t count = x.numel() / width;
  const int64_t most = chain::most_rows(precision, width);
  std::vector<chain::Rows> all;
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t size = std::min(most, count - begin);
    const std::span values(x.const_data_ptr<float>() + begin * width,
                           static_cast<size_t>(size * width));
    all.push_back(chain::encode_rows(values, begin, width, precision));
  }
  return all;
}

void put_rows(const chain::Rows& rows, const at::Tensor& x_BTC) {
  const int64_t width = x_BTC.size(2);
  const int64_t count = x_BTC.numel() / width;
  if (rows.begin < 0 || rows.num_tokens == 0 || rows.end() > count) {
    throw InputError(
        fmt::format("rows from {} to {}, where there are {}", rows.begin, rows.end(), count));
  }
  chain::decode_rows(rows, {x_BTC.mutable_data_ptr<float>() + rows.begin * width,
                            static_cast<size_t>(rows.num_tokens * width)});
}

}  // namespace atl::serve
