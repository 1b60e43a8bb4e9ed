#include "atoll/data/olmo_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/sample_order.h"

namespace atl::data {
namespace {

constexpr int64_t kMaxWorldSize = int64_t{1} << 24;

Pcg64::Uint128 seed_of(const OlmoOptions& options) {
  return static_cast<Pcg64::Uint128>(options.seed) +
         static_cast<Pcg64::Uint128>(static_cast<uint64_t>(options.epoch));
}

void check_options(const OlmoOptions& options, int64_t first_epoch) {
  if (options.epoch < first_epoch) {
    throw UsageError(fmt::format("its epochs count from {}, not {}", first_epoch, options.epoch));
  }
  if (options.num_rows < 0 || options.num_rows >= std::numeric_limits<uint32_t>::max()) {
    throw InputError(fmt::format("the rows must be fewer than 2^32 - 1, not {}", options.num_rows));
  }
}

int64_t rows_kept(const OlmoOptions& options, const OlmoCoreOptions& more) {
  return options.num_rows / more.batch_rows * more.batch_rows;
}

IndexMap raw(std::vector<uint32_t> order, const OlmoOptions& options) {
  if (order.empty()) {
    throw InputError(fmt::format("{} rows are too few: nothing is left of them", options.num_rows));
  }
  return {.numbers = std::move(order), .has_header = false};
}

}  // namespace

IndexMap olmo_order(const OlmoOptions& options, int64_t world_size, bool drop_last) {
  check_options(options, 0);
  if (world_size < 1 || world_size > kMaxWorldSize) {
    throw UsageError(fmt::format("the world size must be 1 to 2^24, not {}", world_size));
  }
  std::vector<uint32_t> order = shuffled_range(seed_of(options), options.num_rows);
  const auto unit = static_cast<size_t>(world_size);
  if (drop_last) {
    order.resize(order.size() / unit * unit);
  } else if (!order.empty()) {
    const size_t num_rows = order.size();
    order.resize((num_rows + unit - 1) / unit * unit);
    // More than once around where there are fewer rows than ranks.
    for (size_t i = num_rows; i < order.size(); ++i) order[i] = order[i - num_rows];
  }
  return raw(std::move(order), options);
}

IndexMap olmo_core_order(const OlmoOptions& options, const OlmoCoreOptions& more) {
  check_options(options, 1);
  if (more.chunk_rows < 1 || more.batch_rows < 0) {
    throw UsageError(fmt::format("chunks and batches have at least one row, not {} and {}",
                                 more.chunk_rows, more.batch_rows));
  }
  std::vector<uint32_t> order =
      shuffled_range(seed_of(options), options.num_rows / more.chunk_rows);
  if (more.chunk_rows > 1) {
    std::vector<uint32_t> rows;
    rows.reserve(order.size() * static_cast<size_t>(more.chunk_rows));
    for (const uint32_t chunk : order) {
      for (int64_t i = 0; i < more.chunk_rows; ++i) {
        rows.push_back(static_cast<uint32_t>(chunk * more.chunk_rows + i));
      }
    }
    order = std::move(rows);
  }
  if (more.batch_rows > 0) {  // Whole chunks may have left fewer.
    order.resize(std::min(order.size(), static_cast<size_t>(rows_kept(options, more))));
  }
  return raw(std::move(order), options);
}

std::string olmo_core_name(const OlmoOptions& options, const OlmoCoreOptions& more) {
  const std::string chunk =
      more.chunk_rows > 1 ? fmt::format("chunk{}_", more.chunk_rows) : std::string();
  if (more.batch_rows > 0) {
    return fmt::format("global_indices_{}epoch{}_seed{}_size{}.npy", chunk, options.epoch,
                       options.seed, rows_kept(options, more));
  }
  return fmt::format("global_indices_{}dataset_size{}_epoch{}_seed{}_v1.npy", chunk,
                     options.num_rows, options.epoch, options.seed);
}

OlmoFiles::OlmoFiles(const std::vector<std::filesystem::path>& files, NumberType type,
                     int64_t sequence_length)
    : type_(type), sequence_length_(sequence_length) {
  ATOLL_CHECK(sequence_length > 0 && (type == NumberType::kU16 || type == NumberType::kU32));
  for (const std::filesystem::path& path : files) {
    File file{.name = path.string(), .map = MappedFile(path), .first_row = num_rows_};
    const size_t num_bytes = file.map.bytes().size();
    if (has_npy_magic(file.map.bytes())) {
      throw InputError(
          fmt::format("'{}' has numpy's header; OLMo's token files are raw numbers", file.name));
    }
    if (num_bytes % number_bytes(type) != 0) {
      throw InputError(fmt::format(
          "'{}' has {} bytes, which are not whole tokens of {}: it is truncated or of another type",
          file.name, num_bytes, number_name(type)));
    }
    num_rows_ += static_cast<int64_t>(num_bytes / number_bytes(type)) / sequence_length;
    files_.push_back(std::move(file));
  }
  if (num_rows_ == 0) {
    throw InputError(fmt::format("the token files hold no row of {} tokens", sequence_length));
  }
}

OlmoFiles::Row OlmoFiles::row(int64_t row) const {
  ATOLL_CHECK(row >= 0 && row < num_rows_);
  // The last file that begins at or before the row; files without one share its number.
  const auto behind =
      std::upper_bound(files_.begin(), files_.end(), row,
                       [](int64_t wanted, const File& file) { return wanted < file.first_row; });
  const File& file = *std::prev(behind);
  Row out{.file = file.name, .begin = (row - file.first_row) * sequence_length_, .ids = {}};
  with_numbers(type_, file.map.bytes(), [&](const auto& tokens) {
    for (int64_t i = 0; i < sequence_length_; ++i) {
      out.ids.push_back(int64_t{tokens[static_cast<size_t>(out.begin + i)]});
    }
  });
  return out;
}

}  // namespace atl::data
