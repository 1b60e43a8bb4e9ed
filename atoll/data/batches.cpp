#include "atoll/data/batches.h"

#include <fmt/format.h>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/sample_order.h"

namespace atl::data {

Batches::Batches(const TokenStore& store, Split split, BatchOptions options)
    : store_(store), split_(split), options_(options) {
  if (options_.sequence_length < 2) {
    throw UsageError(fmt::format("the sequence length must be at least 2 tokens, not {}",
                                 options_.sequence_length));
  }
  if (options_.batch_rows < 1) {
    throw UsageError(
        fmt::format("the batch must have at least one row, not {}", options_.batch_rows));
  }
  num_rows_ = store.num_tokens(split) / options_.sequence_length;
  if (num_rows_ < 1) {
    throw InputError(fmt::format(
        "the {} part of '{}' is smaller than one row: it has {} tokens, a row needs {}; give it "
        "more text or choose a shorter sequence",
        split_name(split), store.folder().string(), store.num_tokens(split),
        options_.sequence_length));
  }
  if (num_rows_ >= int64_t{1} << 32) {
    throw InputError(fmt::format("the {} part of '{}' has {} rows of {} tokens; the limit is 2^32",
                                 split_name(split), store.folder().string(), num_rows_,
                                 options_.sequence_length));
  }
}

void Batches::require_whole_batch() const {
  if (steps_per_pass() > 0) return;
  throw InputError(fmt::format(
      "the {} part of '{}' is smaller than one global batch: it has {} rows of {} tokens, the "
      "batch has {}; give it more text, a smaller batch or a shorter sequence",
      split_name(split_), store_.folder().string(), num_rows_, options_.sequence_length,
      options_.batch_rows));
}

int64_t Batches::pass(int64_t step) const {
  require_whole_batch();
  return step / steps_per_pass();
}

std::vector<int64_t> Batches::rows(int64_t step) const {
  ATOLL_CHECK(step >= 0);
  const int64_t pass_of_step = pass(step);
  const int64_t begin = (step % steps_per_pass()) * options_.batch_rows;
  const std::lock_guard lock(mutex_);
  if (order_pass_ != pass_of_step) {
    order_ = sample_order(options_.seed, pass_of_step, num_rows_);
    order_pass_ = pass_of_step;
  }
  return {order_.begin() + begin, order_.begin() + begin + options_.batch_rows};
}

void Batches::fill(std::span<const int64_t> rows, std::span<int64_t> inputs_BT,
                   std::span<int64_t> targets_BT) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  ATOLL_CHECK(inputs_BT.size() == rows.size() * length && targets_BT.size() == inputs_BT.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    ATOLL_CHECK(rows[i] >= 0 && rows[i] < num_rows_);
    const std::span<int64_t> input = inputs_BT.subspan(i * length, length);
    const std::span<int64_t> target = targets_BT.subspan(i * length, length);
    store_.read(split_, rows[i] * options_.sequence_length, input);
    std::copy(input.begin() + 1, input.end(), target.begin());
    target.back() = kIgnoredTarget;
  }
}

}  // namespace atl::data
