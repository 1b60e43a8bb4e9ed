// NeoX's split of a store's documents into train, valid and test.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/data/neox_order.h"

namespace atl::data {
namespace {

double part_size(std::string_view text, std::string_view split) {
  const size_t begin = text.find_first_not_of(' ');
  const size_t end = text.find_last_not_of(' ');
  if (begin != std::string_view::npos) {
    const auto value = number_in<double>(text.substr(begin, end + 1 - begin));
    if (value && *value >= 0 && std::isfinite(*value)) return *value;
  }
  throw UsageError(fmt::format(
      "the split '{}' must be numbers with ',' or '/' between them, such as 969,30,1", split));
}

}  // namespace

std::array<int64_t, 4> neox_split(std::string_view split, int64_t num_documents) {
  const char separator = split.find(',') != std::string_view::npos ? ',' : '/';
  std::array<double, 3> parts{};
  std::string_view rest = split;
  for (size_t i = 0;; ++i) {
    const size_t end = rest.find(separator);
    const double size = part_size(rest.substr(0, end), split);
    if (i < parts.size()) parts[i] = size;  // NeoX passes over what follows the third.
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  const double sum = parts[0] + parts[1] + parts[2];
  if (sum <= 0) throw UsageError(fmt::format("the split '{}' has no part", split));
  std::array<int64_t, 4> bounds{};
  for (size_t i = 0; i < parts.size(); ++i) {
    // Python rounds halves to even, which is also the processor's mode.
    const double share = parts[i] / sum * static_cast<double>(num_documents);
    bounds[i + 1] = bounds[i] + static_cast<int64_t>(std::nearbyint(share));
  }
  const int64_t excess = bounds[3] - num_documents;
  for (size_t i = 1; i < bounds.size(); ++i) bounds[i] -= excess;
  if (!std::is_sorted(bounds.begin(), bounds.end())) {
    throw UsageError(
        fmt::format("the split '{}' of {} documents rounds to a part before document 0, which NeoX "
                    "refuses, too",
                    split, num_documents));
  }
  return bounds;
}

}  // namespace atl::data
