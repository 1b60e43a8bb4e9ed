#include "atoll/data/index_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/data/draft_file.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

NumberType type_of(const IndexMap& map) {
  constexpr NumberType kTypes[] = {NumberType::kU32, NumberType::kI32, NumberType::kI64};
  return kTypes[map.numbers.index()];
}

std::string file_header(const IndexMap& map) {
  return map.has_header ? format_npy_header(map.header()) : "";
}

/// The position of a number as a reader of the file would name it.
std::string entry(size_t index, bool is_pairs) {
  return is_pairs ? fmt::format("entry ({}, {})", index / 2, index % 2)
                  : fmt::format("entry {}", index);
}

std::vector<int64_t> widened(const NpyFile& map) {
  return with_numbers(map.header().type, map.data(), [](const auto& numbers) {
    std::vector<int64_t> values(numbers.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = numbers[i];
    return values;
  });
}

/// Each of the numbers min ... max must come equally often.
void check_even(const std::vector<int64_t>& values, bool from_zero, const std::string& name) {
  if (values.empty()) return;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const int64_t first = from_zero ? 0 : *least;
  const uint64_t range = static_cast<uint64_t>(*most) - static_cast<uint64_t>(first);
  if (*least < first || range >= values.size()) {
    throw InputError(
        fmt::format("'{}' is damaged: it has {} numbers from {} to {}, so some never come", name,
                    values.size(), *least, *most));
  }
  std::vector<uint32_t> counts(range + 1);
  for (const int64_t value : values) ++counts[static_cast<size_t>(value - first)];
  const uint64_t each = from_zero ? 1 : values.size() / counts.size();
  const auto odd =
      std::find_if(counts.begin(), counts.end(), [&](uint32_t count) { return count != each; });
  if (odd == counts.end()) return;
  throw InputError(fmt::format("'{}' is damaged: {} comes {} times, the others {} on average", name,
                               first + (odd - counts.begin()), *odd, each));
}

void check_ascending_pairs(const std::vector<int64_t>& values, const std::string& name) {
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    const bool first = i == 0;
    const bool ok = values[i] >= 0 && values[i + 1] >= 0 &&
                    (first || values[i] > values[i - 2] ||
                     (values[i] == values[i - 2] && values[i + 1] > values[i - 1]));
    if (ok) continue;
    throw InputError(fmt::format("'{}' is damaged: row {} is ({}, {}), which does not ascend", name,
                                 i / 2, values[i], values[i + 1]));
  }
}

}  // namespace

int64_t IndexMap::at(size_t index) const {
  return std::visit([&](const auto& values) { return int64_t{values.at(index)}; }, numbers);
}

size_t IndexMap::size() const {
  return std::visit([](const auto& values) { return values.size(); }, numbers);
}

std::span<const std::byte> IndexMap::bytes() const {
  return std::visit([](const auto& values) { return std::as_bytes(std::span(values)); }, numbers);
}

NpyHeader IndexMap::header() const {
  const auto count = static_cast<int64_t>(size());
  return {.type = type_of(*this),
          .num_rows = is_pairs ? count / 2 : count,
          .num_columns = is_pairs ? 2 : 1,
          .is_matrix = is_pairs};
}

std::string IndexMap::sha256() const {
  return hex(Sha256().update(file_header(*this)).update(bytes()).finish());
}

void write_index_map(const IndexMap& map, const fs::path& file) {
  DraftFile draft(file);
  draft.append(as_byte_span(file_header(map)));
  draft.append(map.bytes());
  draft.publish();
}

void compare_index_map(const IndexMap& map, const fs::path& file) {
  const MappedFile found(file);
  const NpyHeader expected = map.header();
  std::span<const std::byte> data = found.bytes();
  if (has_npy_magic(data)) {
    const NpyHeader header = parse_npy_header(data, file.string());
    if (header.type != expected.type || header.shape() != expected.shape()) {
      throw InputError(fmt::format("'{}' has {} numbers of {}, the recomputed order {} of {}",
                                   file.string(), header.shape(), number_name(header.type),
                                   expected.shape(), number_name(expected.type)));
    }
    data = data.subspan(header.data_offset);
  } else if (data.size() != map.bytes().size()) {
    throw InputError(fmt::format(
        "'{}' has {} bytes without a header, the recomputed order {} ({} numbers of {})",
        file.string(), data.size(), map.bytes().size(), expected.shape(),
        number_name(expected.type)));
  }
  if (std::equal(data.begin(), data.end(), map.bytes().begin(), map.bytes().end())) return;
  with_numbers(expected.type, data, [&](const auto& numbers) {
    size_t first = map.size();
    size_t num_different = 0;
    for (size_t i = 0; i < map.size(); ++i) {
      if (int64_t{numbers[i]} == map.at(i)) continue;
      if (num_different++ == 0) first = i;
    }
    throw InputError(
        fmt::format("'{}' is not the recomputed order: {} of {} numbers differ, the first at {}: "
                    "it has {}, the order {}",
                    file.string(), num_different, map.size(), entry(first, map.is_pairs),
                    int64_t{numbers[first]}, map.at(first)));
  });
}

void check_index_file(const NpyFile& map, const fs::path& file) {
  const std::string name = file.filename().string();
  const bool is_shuffle = name.ends_with("_shuffle_idx.npy");
  const bool is_documents = name.ends_with("_doc_idx.npy");
  const bool is_samples = name.ends_with("_sample_idx.npy");
  if (!is_shuffle && !is_documents && !is_samples) return;
  const bool has_pairs = map.header().is_matrix && map.header().num_columns == 2;
  if (has_pairs != is_samples || map.header().is_matrix != is_samples) {
    throw InputError(fmt::format("'{}' has the shape {}, which no such index map has",
                                 file.string(), map.header().shape()));
  }
  if (is_samples) return check_ascending_pairs(widened(map), file.string());
  check_even(widened(map), is_shuffle, file.string());
}

}  // namespace atl::data
