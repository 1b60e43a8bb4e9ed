#include "atoll/model/products.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "atoll/base/check.h"

namespace atl::model {
namespace {

using weights::StoredTensor;

// Inputs at a time: whole blocks of every type. Their sums are added up from the first on.
constexpr int64_t kDepth = 1024;
// Outputs at a time, a multiple of all tiles': with so many inputs they stay in a near cache.
constexpr int64_t kPanel = 24;
// Rows at a time that use a panel while it is there: widening it then costs a few percent.
constexpr int64_t kBlockRows = 480;
// Rows up to which what counts is to read the weights in their order, and
constexpr int64_t kFewRows = 8;
// up to which they are not widened before: more read them so often that it pays to have them in
// FP32, close to each other.
constexpr int64_t kRowsInPlace = 32;
// Multiplications from which on a thread is worth its waking.
constexpr int64_t kLeastOperations = 65'536;

std::optional<WeightFormat> format_of(codec::GgmlType type) {
  switch (type) {
    case codec::GgmlType::kF32:
      return WeightFormat::kF32;
    case codec::GgmlType::kBF16:
      return WeightFormat::kBF16;
    case codec::GgmlType::kQ8_0:
      return WeightFormat::kQ8_0;
    case codec::GgmlType::kQ4_0:
      return WeightFormat::kQ4_0;
    case codec::GgmlType::kQ4_1:
      return WeightFormat::kQ4_1;
    case codec::GgmlType::kQ4_K:
      return WeightFormat::kQ4_K;
    case codec::GgmlType::kQ5_K:
      return WeightFormat::kQ5_K;
    case codec::GgmlType::kQ6_K:
      return WeightFormat::kQ6_K;
    default:
      return std::nullopt;
  }
}

/// Memory whose values nobody reads before they are written.
std::unique_ptr<float[]> uninitialised(int64_t size) {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(size));
}

}  // namespace

// --- which kernel ---
std::span<const ProductKernel* const> product_kernels() {
  static const std::vector<const ProductKernel*> usable = [] {
    std::vector<const ProductKernel*> kernels = {&kPlainProduct};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("x86-64-v3")) kernels.push_back(&kAvx2Product);
    if (__builtin_cpu_supports("x86-64-v4")) kernels.push_back(&kAvx512Product);
#endif
    return kernels;
  }();
  return usable;
}

const ProductKernel& product_kernel() { return *product_kernels().back(); }

/// One thread's way to the weights of kPanel outputs, some inputs at a time.
class StoredMatrix::Panel {
 public:
  Panel(const StoredMatrix& matrix, const ProductKernel& kernel)
      : matrix_(matrix), kernel_(kernel) {}

  /// The outputs from `first` on.
  void choose(int64_t first) {
    first_ = first;
    count_ = std::min(kPanel, matrix_.num_outputs_ - first);
    if (matrix_.has_inputs_first_) return;
    for (int64_t i = 0; i < kPanel + kMostTileOutputs; ++i) {
      const int64_t output = std::min(first + i, matrix_.num_outputs_ - 1);
      places_[static_cast<size_t>(i)] = matrix_.place_of(output);
    }
  }

  /// out[row * number of outputs + i] = rows of x, which begin at input k, by inputs [k, k + depth)
  /// of the outputs; added to what is there unless k is 0.
  void multiply(int64_t num_rows, const float* x, int64_t x_stride, int64_t k, int64_t depth,
                float* out) {
    const bool as_it_lies = reads_as_it_lies(num_rows);
    as_it_lies ? point(k, depth) : widen(k, depth);
    const auto format = as_it_lies ? *matrix_.format_ : WeightFormat::kF32;
    const ProductKernel::Dots dots = kernel_.dots[static_cast<size_t>(format)];
    dots({.num_rows = num_rows,
          .num_outputs = count_,
          .count = depth,
          .x_stride = x_stride,
          .out_stride = matrix_.num_outputs_,
          .adds = k > 0},
         x, rows_.data(), out);
  }

 private:
  bool reads_as_it_lies(int64_t num_rows) const {
    return matrix_.format_ == WeightFormat::kBF16 || (matrix_.format_ && num_rows <= kRowsInPlace);
  }

  void point(int64_t k, int64_t depth) {
    const weights::StoredTensor& any = matrix_.tensors_.front();
    const int64_t offset = any.num_bytes(k);
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = places_[i].begin + offset;
    // The next outputs are next. Those behind the last ones are read, and left out: they have to
    // lie where they do.
    if (count_ < kPanel || k + depth == matrix_.num_inputs_) return;
    const int64_t next = any.num_bytes(k + depth);
    for (size_t i = 0; i < kMostTileOutputs; ++i) {
      rows_[static_cast<size_t>(count_) + i] = places_[i].begin + next;
    }
  }

  void widen(int64_t k, int64_t depth) {
    if (!wide_) wide_ = uninitialised(kPanel * kDepth);
    const auto values = [&](int64_t begin, int64_t count) {
      return std::span(wide_.get() + begin, static_cast<size_t>(count));
    };
    if (matrix_.has_inputs_first_) {
      std::vector<float> turned(static_cast<size_t>(depth * count_));
      for (int64_t i = 0; i < depth; ++i) {
        matrix_.tensors_.front().read(k + i, first_,
                                      std::span(turned).subspan(static_cast<size_t>(i * count_),
                                                                static_cast<size_t>(count_)));
      }
      weights::transpose(turned, count_, values(0, depth * count_));
    } else {
      for (int64_t i = 0; i < count_; ++i) {
        const Place& place = places_[static_cast<size_t>(i)];
        place.tensor->read(place.row, k, values(i * depth, depth));
      }
    }
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i] = wide_.get() + std::min(static_cast<int64_t>(i), count_ - 1) * depth;
    }
  }

  const StoredMatrix& matrix_;
  const ProductKernel& kernel_;
  std::unique_ptr<float[]> wide_;  // Weights of types that no kernel reads.
  int64_t first_ = 0;
  int64_t count_ = 0;
  std::array<Place, kPanel + kMostTileOutputs> places_{};
  std::array<const void*, kPanel + kMostTileOutputs> rows_{};
};

StoredMatrix::StoredMatrix(std::vector<StoredTensor> tensors)
    : tensors_(std::move(tensors)),
      has_inputs_first_(!tensors_.empty() && tensors_.front().inputs_first) {
  ATOLL_CHECK(!tensors_.empty() && (!has_inputs_first_ || tensors_.size() == 1));
  format_ = format_of(tensors_.front().type);
  num_inputs_ = has_inputs_first_ ? tensors_.front().num_rows : tensors_.front().width;
  for (const StoredTensor& tensor : tensors_) {
    ATOLL_CHECK(has_inputs_first_ || tensor.width == num_inputs_);
    row_bytes_.push_back(tensor.num_bytes(tensor.width));
    if (has_inputs_first_ || tensor.type != tensors_.front().type) format_.reset();
    num_outputs_ += has_inputs_first_ ? tensor.width : tensor.num_rows;
  }
}

StoredMatrix::Place StoredMatrix::place_of(int64_t output) const {
  size_t part = 0;
  while (output >= tensors_[part].num_rows) output -= tensors_[part++].num_rows;
  const StoredTensor& tensor = tensors_[part];
  return {&tensor, output, tensor.bytes.data() + tensor.order.place_of(output) * row_bytes_[part]};
}

void StoredMatrix::read_output(int64_t output, float* row_K) const {
  if (has_inputs_first_) {
    for (int64_t k = 0; k < num_inputs_; ++k) tensors_.front().read(k, output, {row_K + k, 1});
    return;
  }
  const Place place = place_of(output);
  place.tensor->read(place.row, 0, {row_K, static_cast<size_t>(num_inputs_)});
}

/// Some rows by the panels [begin, end).
void StoredMatrix::multiply_block(int64_t num_rows, const float* x_MK, float* out_MN, int64_t begin,
                                  int64_t end, const ProductKernel& kernel) const {
  Panel panel(*this, kernel);
  const auto depth_at = [&](int64_t k) { return std::min(kDepth, num_inputs_ - k); };
  if (num_rows <= kFewRows) {
    for (int64_t output = begin * kPanel; output < end * kPanel; output += kPanel) {
      panel.choose(output);
      for (int64_t k = 0; k < num_inputs_; k += kDepth) {
        panel.multiply(num_rows, x_MK + k, num_inputs_, k, depth_at(k), out_MN + output);
      }
    }
    return;
  }
  // Close to each other, or rows would claim the same lines of the nearest cache.
  const auto x = uninitialised(num_rows * depth_at(0));
  for (int64_t k = 0; k < num_inputs_; k += kDepth) {
    const int64_t depth = depth_at(k);
    for (int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(x_MK + row * num_inputs_ + k, depth, x.get() + row * depth);
    }
    for (int64_t output = begin * kPanel; output < end * kPanel; output += kPanel) {
      panel.choose(output);
      panel.multiply(num_rows, x.get(), depth, k, depth, out_MN + output);
    }
  }
}

void StoredMatrix::multiply(int64_t num_rows, const float* x_MK, float* out_MN,
                            const ProductKernel& kernel) const {
  const int64_t num_blocks = (num_rows + kBlockRows - 1) / kBlockRows;
  const int64_t num_panels = (num_outputs_ + kPanel - 1) / kPanel;
  const int64_t block_rows =
      (num_rows + num_blocks - 1) / std::max<int64_t>(1, num_blocks);  // Alike, for the threads.
  const int64_t operations = block_rows * num_inputs_ * kPanel;
  const int64_t grain = std::max<int64_t>(1, kLeastOperations / std::max<int64_t>(1, operations));
  at::parallel_for(0, num_blocks * num_panels, grain, [&](int64_t first, int64_t last) {
    while (first < last) {
      const int64_t block = first / num_panels;
      const int64_t row = block * block_rows;
      const int64_t until = std::min(last, (block + 1) * num_panels);
      multiply_block(std::min(block_rows, num_rows - row), x_MK + row * num_inputs_,
                     out_MN + row * num_outputs_, first - block * num_panels,
                     until - block * num_panels, kernel);
      first = until;
    }
  });
}

}  // namespace atl::model
