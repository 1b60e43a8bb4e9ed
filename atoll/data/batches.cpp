#include "atoll/data/batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/sample_order.h"

namespace atl::data {
namespace {

constexpr int64_t kBlendStride = 1 << 14;
constexpr int64_t kMaxBlended = int64_t{1} << 34;  // Minutes away, and far beyond any run.

void check_options(const BatchOptions& options) {
  if (options.sequence_length < 2) {
    throw UsageError(fmt::format("the sequence length must be at least 2 tokens, not {}",
                                 options.sequence_length));
  }
  if (options.batch_rows < 1) {
    throw UsageError(
        fmt::format("the batch must have at least one row, not {}", options.batch_rows));
  }
}

}  // namespace

Batches::Batches(const TokenStore& store, Split split, BatchOptions options)
    : split_(split), options_(options) {
  check_options(options_);
  require_row(store);
  add(store, 1);
}

Batches::Batches(const Mixture& mixture, Split split, BatchOptions options)
    : split_(split), options_(options) {
  check_options(options_);
  const std::vector<TokenStore>& stores = mixture.stores();
  for (size_t i = 0; i < stores.size(); ++i) {
    if (split == Split::kTrain) require_row(stores[i]);
    add(stores[i], mixture.weights()[i]);
  }
  if (parts_.empty()) require_row(stores.front());
}

void Batches::require_row(const TokenStore& store) const {
  if (store.num_tokens(split_) >= options_.sequence_length) return;
  throw InputError(fmt::format(
      "the {} part of '{}' is smaller than one row: it has {} tokens, a row needs {}; give it "
      "more text or choose a shorter sequence",
      split_name(split_), store.folder().string(), store.num_tokens(split_),
      options_.sequence_length));
}

void Batches::add(const TokenStore& store, double weight) {
  const int64_t rows = store.num_tokens(split_) / options_.sequence_length;
  if (rows < 1) return;
  if (rows >= int64_t{1} << 32) {
    throw InputError(fmt::format("the {} part of '{}' has {} rows of {} tokens; the limit is 2^32",
                                 split_name(split_), store.folder().string(), rows,
                                 options_.sequence_length));
  }
  parts_.push_back({.store = &store, .weight = weight, .first_row = num_rows_, .num_rows = rows});
  num_rows_ += rows;
}

std::vector<double> Batches::weights() const {
  std::vector<double> weights;
  for (const Part& part : parts_) weights.push_back(part.weight);
  return weights;
}

void Batches::require_whole_batch() const {
  if (parts_.size() > 1 || steps_per_pass() > 0) return;
  throw InputError(fmt::format(
      "the {} part of '{}' is smaller than one global batch: it has {} rows of {} tokens, the "
      "batch has {}; give it more text, a smaller batch or a shorter sequence",
      split_name(split_), parts_.front().store->folder().string(), num_rows_,
      options_.sequence_length, options_.batch_rows));
}

std::optional<int64_t> Batches::pass(int64_t step) const {
  if (parts_.size() > 1) return std::nullopt;
  require_whole_batch();
  return step / steps_per_pass();
}

int64_t Batches::row_at(size_t part, int64_t pass, int64_t place) const {
  if (orders_.empty()) orders_.resize(parts_.size());
  Order& order = orders_[part];
  if (order.pass != pass) {
    order.rows = sample_order(options_.seed, pass, parts_[part].num_rows);
    order.pass = pass;
  }
  return parts_[part].first_row + order.rows[static_cast<size_t>(place)];
}

std::vector<int64_t> Batches::rows(int64_t step) const {
  ATOLL_CHECK(step >= 0);
  const std::optional<int64_t> pass_of_step = pass(step);
  const MutexLock lock(mutex_);
  if (!pass_of_step) return blended(step);
  const int64_t begin = (step % steps_per_pass()) * options_.batch_rows;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < options_.batch_rows; ++i) {
    rows.push_back(row_at(0, *pass_of_step, begin + i));
  }
  return rows;
}

std::vector<int64_t> Batches::blended(int64_t step) const {
  if (step > kMaxBlended / options_.batch_rows) {
    throw UsageError(fmt::format("step {} is beyond the {} rows that a mixture is followed for",
                                 step, kMaxBlended));
  }
  const int64_t begin = step * options_.batch_rows;
  const auto stretch = static_cast<size_t>(begin / kBlendStride);
  if (blends_.empty()) blends_.emplace_back(weights());
  while (blends_.size() <= stretch) {
    Blend blend = blends_.back();
    for (int64_t i = 0; i < kBlendStride; ++i) blend.next();
    blends_.push_back(std::move(blend));
  }
  Blend blend = blends_[stretch];
  while (blend.position() < begin) blend.next();
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < options_.batch_rows; ++i) {
    const Blend::Row given = blend.next();
    const int64_t num_rows = parts_[given.source].num_rows;
    rows.push_back(row_at(given.source, given.number / num_rows, given.number % num_rows));
  }
  return rows;
}

std::vector<int64_t> Batches::spread(int64_t count) const {
  std::vector<int64_t> counts(parts_.size());
  Blend blend(weights());
  for (int64_t i = 0; i < std::min(count, num_rows_); ++i) ++counts[blend.next().source];
  std::vector<int64_t> rows;
  for (size_t k = 0; k < parts_.size(); ++k) {
    const int64_t wanted = std::min(counts[k], parts_[k].num_rows);
    for (int64_t i = 0; i < wanted; ++i) {
      rows.push_back(parts_[k].first_row + i * parts_[k].num_rows / wanted);
    }
  }
  return rows;
}

RowPlace Batches::place(int64_t row) const {
  ATOLL_CHECK(row >= 0 && row < num_rows_);
  const auto behind = std::partition_point(parts_.begin(), parts_.end(),
                                           [&](const Part& part) { return part.first_row <= row; });
  const Part& part = *std::prev(behind);
  return {.store = part.store, .row = row - part.first_row};
}

void Batches::will_fill(std::span<const int64_t> rows) const {
  for (const int64_t row : rows) {
    const RowPlace from = place(row);
    from.store->will_read(split_, from.row * options_.sequence_length, options_.sequence_length);
  }
}

void Batches::fill(std::span<const int64_t> rows, std::span<int64_t> inputs_BT,
                   std::span<int64_t> targets_BT) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  ATOLL_CHECK(inputs_BT.size() == rows.size() * length && targets_BT.size() == inputs_BT.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowPlace from = place(rows[i]);
    const std::span<int64_t> input = inputs_BT.subspan(i * length, length);
    const std::span<int64_t> target = targets_BT.subspan(i * length, length);
    from.store->read(split_, from.row * options_.sequence_length, input);
    std::copy(input.begin() + 1, input.end(), target.begin());
    target.back() = kIgnoredTarget;
  }
}

}  // namespace atl::data
