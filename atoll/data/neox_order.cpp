#include "atoll/data/neox_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/blend.h"
#include "atoll/data/numpy_random.h"

namespace atl::data {
namespace {

constexpr int64_t kMaxNumbers = int64_t{1} << 33;
constexpr int64_t kMaxTokens = int64_t{1} << 60;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

void check_options(const NeoxOptions& options) {
  if (options.num_samples < 0 || options.num_samples > int64_t{1} << 40) {
    throw UsageError(fmt::format("the samples must be 0 to 2^40, not {}", options.num_samples));
  }
  if (options.sequence_length < 1 || options.sequence_length > int64_t{1} << 20) {
    throw UsageError(
        fmt::format("the sequence length must be 1 to 2^20, not {}", options.sequence_length));
  }
}

void check_length(const char* what, int64_t length, int64_t most) {
  if (length <= most) return;
  throw UsageError(fmt::format("{} would have {} numbers, more than {}", what, length, most));
}

/// Sizes of the arrays, and the generator between its two shuffles.
struct Plan {
  int64_t num_epochs = 0;
  int64_t num_samples = 0;
  RandomState generator;
};

Plan plan(int64_t num_tokens, const NeoxOptions& options) {
  check_options(options);
  if (num_tokens < 2) {
    throw InputError(fmt::format("an order needs at least two tokens, not {}", num_tokens));
  }
  // A sample's last token is the next one's first: n samples take n * length + 1 tokens.
  const int64_t wanted = options.num_samples * options.sequence_length + 1;
  const int64_t num_epochs = (wanted + num_tokens - 1) / num_tokens;
  const int64_t num_samples = (num_epochs * num_tokens - 1) / options.sequence_length;
  check_length("shuffle_idx", num_samples, kMaxNumbers);
  return {
      .num_epochs = num_epochs, .num_samples = num_samples, .generator = RandomState(options.seed)};
}

IndexMap shuffled_documents(int64_t begin, int64_t end, Plan& plan) {
  if (end > kMaxInt32) {
    throw InputError(fmt::format("NeoX numbers documents in 32 bits; {} are too many", end));
  }
  const int64_t count = end - begin;
  check_length("doc_idx",
               plan.num_epochs > kMaxNumbers / count ? kMaxNumbers + 1 : plan.num_epochs * count,
               kMaxNumbers);
  std::vector<int32_t> documents(static_cast<size_t>(plan.num_epochs * count));
  for (size_t i = 0; i < documents.size(); ++i) {
    documents[i] = static_cast<int32_t>(begin + static_cast<int64_t>(i) % count);
  }
  shuffle(plan.generator, documents);
  return {.numbers = std::move(documents)};
}

template <typename T>
IndexMap range_shuffled(int64_t count, RandomState& generator) {
  std::vector<T> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), T{0});
  shuffle(generator, values);
  return {.numbers = std::move(values)};
}

IndexMap shuffled_samples(Plan& plan) {
  const bool is_narrow = plan.num_samples < kMaxUint32 - 1;
  return is_narrow ? range_shuffled<uint32_t>(plan.num_samples, plan.generator)
                   : range_shuffled<int64_t>(plan.num_samples, plan.generator);
}

template <typename T>
IndexMap cut_samples(const PackedNumbers<int32_t>& sizes, const std::vector<int32_t>& documents,
                     int64_t num_samples, int64_t sequence_length) {
  std::vector<T> pairs;
  pairs.reserve(static_cast<size_t>(2 * (num_samples + 1)));
  size_t at = 0;       // In doc_idx.
  int64_t offset = 0;  // In that document.
  pairs.insert(pairs.end(), {T{0}, T{0}});
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    int64_t missing = sequence_length + 1;
    for (;;) {
      const int64_t rest = sizes[static_cast<size_t>(documents[at])] - offset;
      if (rest >= missing) break;
      missing -= rest;
      ++at;
      offset = 0;
    }
    offset += missing - 1;  // The last token begins the next sample.
    pairs.insert(pairs.end(), {static_cast<T>(at), static_cast<T>(offset)});
  }
  return {.numbers = std::move(pairs), .is_pairs = true};
}

IndexMap cut_samples(const PackedNumbers<int32_t>& sizes, const IndexMap& doc_idx, const Plan& plan,
                     int64_t num_tokens, int64_t sequence_length) {
  const auto& documents = std::get<std::vector<int32_t>>(doc_idx.numbers);
  // NeoX divides without rounding here, in double precision.
  const double samples =
      static_cast<double>(plan.num_epochs * num_tokens - 1) / static_cast<double>(sequence_length);
  if (2 * (samples + 1) >= static_cast<double>(kMaxInt32)) {
    return cut_samples<int64_t>(sizes, documents, plan.num_samples, sequence_length);
  }
  if (static_cast<int64_t>(documents.size()) > kMaxInt32) {
    throw InputError(
        fmt::format("NeoX numbers the {} entries of doc_idx in 32 bits here, which are too few",
                    documents.size()));
  }
  return cut_samples<int32_t>(sizes, documents, plan.num_samples, sequence_length);
}

}  // namespace

int64_t NeoxOrder::sample(int64_t row) const {
  ATOLL_CHECK(row >= 0);
  if (row < num_rows()) return shuffle_idx.at(static_cast<size_t>(row));
  if (num_rows() < 2) throw UsageError(fmt::format("the order has one row, 0; not {}", row));
  return shuffle_idx.at(static_cast<size_t>(row % (num_rows() - 1)));
}

std::vector<NeoxPiece> NeoxOrder::row(int64_t row, const PackedNumbers<int32_t>& sizes) const {
  const auto from = 2 * static_cast<size_t>(sample(row));
  const int64_t first = sample_idx.at(from);
  const int64_t last = sample_idx.at(from + 2);
  std::vector<NeoxPiece> pieces;
  for (int64_t at = first; at <= last; ++at) {
    const int64_t document = doc_idx.at(static_cast<size_t>(at));
    NeoxPiece piece{
        .document = document,
        .begin = at == first ? sample_idx.at(from + 1) : 0,
        .end = at == last ? sample_idx.at(from + 3) + 1 : sizes[static_cast<size_t>(document)]};
    if (piece.begin < piece.end) pieces.push_back(piece);  // A document may be empty.
  }
  return pieces;
}

NeoxOrder neox_order(const PackedNumbers<int32_t>& sizes, int64_t begin, int64_t end,
                     const NeoxOptions& options) {
  ATOLL_CHECK(begin >= 0 && begin <= end && end <= static_cast<int64_t>(sizes.size()));
  if (begin == end) throw InputError("an order needs documents, and this part has none");
  int64_t num_tokens = 0;
  for (int64_t i = begin; i < end; ++i) num_tokens += sizes[static_cast<size_t>(i)];
  Plan steps = plan(num_tokens, options);
  NeoxOrder order;
  order.num_epochs = steps.num_epochs;
  order.doc_idx = shuffled_documents(begin, end, steps);
  order.sample_idx = cut_samples(sizes, order.doc_idx, steps, num_tokens, options.sequence_length);
  order.shuffle_idx = shuffled_samples(steps);
  return order;
}

NeoxOrder neox_shuffles(int64_t num_documents, int64_t num_tokens, const NeoxOptions& options) {
  ATOLL_CHECK(num_documents > 0 && num_tokens <= kMaxTokens);
  Plan steps = plan(num_tokens, options);
  NeoxOrder order;
  order.num_epochs = steps.num_epochs;
  order.doc_idx = shuffled_documents(0, num_documents, steps);
  order.shuffle_idx = shuffled_samples(steps);
  return order;
}

std::vector<int64_t> neox_row_tokens(const MegatronStore& store, const NeoxOrder& order,
                                     int64_t row) {
  std::vector<int64_t> ids;
  for (const NeoxPiece& piece : order.row(row, store.index().sizes)) {
    const size_t before = ids.size();
    ids.resize(before + static_cast<size_t>(piece.end - piece.begin));
    store.read(piece.document, piece.begin, std::span(ids).subspan(before));
  }
  return ids;
}

std::string neox_map_name(const std::string& prefix, const std::string& name,
                          const NeoxOptions& options, bool old_names) {
  return fmt::format("{}_{}_indexmap_{}ns_{}sl_{}s{}", prefix, name, options.num_samples,
                     options.sequence_length, options.seed, old_names ? "" : "_packedpi_ac");
}

std::vector<int64_t> neox_blend_samples(std::span<const double> weights, int64_t num_samples) {
  std::vector<int64_t> counts;
  for (const double share : shares_of(weights)) {
    counts.push_back(
        static_cast<int64_t>(std::ceil(static_cast<double>(num_samples) * share * 1.005)));
  }
  return counts;
}

NeoxBlend neox_blend(std::span<const double> weights, std::span<const int64_t> num_rows) {
  ATOLL_CHECK(weights.size() == num_rows.size());
  Blend rule(weights);
  int64_t size = 0;
  for (const int64_t rows : num_rows) size += rows - 1;
  check_length("the blend", size, kMaxNumbers);

  NeoxBlend blend;
  blend.store.reserve(static_cast<size_t>(size));
  blend.row.reserve(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const Blend::Row row = rule.next();
    blend.store.push_back(static_cast<uint8_t>(row.source));
    blend.row.push_back(row.number);
  }
  return blend;
}

}  // namespace atl::data
