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

// Inputs at a time: whole blocks of every type, and a panel of them stays in the nearest cache.
constexpr int64_t kDepth = 256;
// Tiles of rows that use a panel while it is there: widening it then costs a few percent.
constexpr int64_t kTiles = 32;
// Multiplications from which on a thread is worth its waking.
constexpr int64_t kLeastOperations = 65'536;

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

/// One thread's way to panels of weights.
class StoredMatrix::Panels {
 public:
  Panels(const StoredMatrix& matrix, const ProductKernel& kernel)
      : matrix_(matrix),
        kernel_(kernel),
        panel_(uninitialised(kDepth * kernel.lanes)),
        wide_(uninitialised(kDepth * kernel.lanes)) {}

  /// The panel of the outputs from `first` on.
  void choose(int64_t first) {
    first_ = first;
    count_ = std::min(kernel_.lanes, matrix_.num_outputs_ - first);
    if (matrix_.has_inputs_first_) return;
    for (int64_t lane = 0; lane < kernel_.lanes; ++lane) {
      const Place place = matrix_.place_of(first + std::min(lane, count_ - 1));
      places_[static_cast<size_t>(lane)] = place;
      rows_[static_cast<size_t>(lane)] = place.tensor->row(place.row);
    }
    const auto all_are = [&](codec::GgmlType type) {
      return std::all_of(places_.begin(), places_.begin() + kernel_.lanes,
                         [&](const Place& place) { return place.tensor->type == type; });
    };
    is_bf16_ = all_are(codec::GgmlType::kBF16);
    is_f32_ = all_are(codec::GgmlType::kF32);
  }

  /// Its weights of inputs [k, k + depth). What lies behind the last output is anything.
  const float* at(int64_t k, int64_t depth) {
    if (matrix_.has_inputs_first_) {
      for (int64_t i = 0; i < depth; ++i) {
        matrix_.tensors_.front().read(
            k + i, first_,
            {&panel_[static_cast<size_t>(i * kernel_.lanes)], static_cast<size_t>(count_)});
      }
    } else if (is_bf16_ || is_f32_) {  // As they lie.
      std::array<const void*, kMaxLanes> rows{};
      const int64_t offset = k * (is_bf16_ ? 2 : 4);
      for (int64_t lane = 0; lane < kernel_.lanes; ++lane) {
        rows[static_cast<size_t>(lane)] = rows_[static_cast<size_t>(lane)] + offset;
      }
      (is_bf16_ ? kernel_.pack_bf16 : kernel_.pack)(rows.data(), depth, panel_.get());
    } else {
      std::array<const void*, kMaxLanes> rows{};
      for (int64_t lane = 0; lane < kernel_.lanes; ++lane) {
        float* const wide = &wide_[static_cast<size_t>(lane * kDepth)];
        const Place& place = places_[static_cast<size_t>(lane)];
        foresee(place, rows_[static_cast<size_t>(lane)], k, depth);
        place.tensor->read(place.row, k, {wide, static_cast<size_t>(depth)});
        rows[static_cast<size_t>(lane)] = wide;
      }
      kernel_.pack(rows.data(), depth, panel_.get());
    }
    return panel_.get();
  }

 private:
  /// There are more rows than streams that processors foresee by themselves: what is read after
  /// this is on its way then.
  static void foresee(const Place& place, const std::byte* row, int64_t k, int64_t depth) {
    constexpr int64_t kLine = 64;
    const int64_t begin = place.tensor->num_bytes(k + depth);
    const int64_t end = place.tensor->num_bytes(std::min(place.tensor->width, k + 2 * depth));
    for (int64_t at = begin; at < end; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }

  const StoredMatrix& matrix_;
  const ProductKernel& kernel_;
  std::unique_ptr<float[]> panel_;
  std::unique_ptr<float[]> wide_;  // The same before it is turned, where its type needs that.
  int64_t first_ = 0;
  int64_t count_ = 0;
  std::array<Place, kMaxLanes> places_{};
  std::array<const std::byte*, kMaxLanes> rows_{};
  bool is_bf16_ = false;
  bool is_f32_ = false;
};

StoredMatrix::StoredMatrix(std::vector<StoredTensor> tensors)
    : tensors_(std::move(tensors)),
      has_inputs_first_(!tensors_.empty() && tensors_.front().inputs_first) {
  ATOLL_CHECK(!tensors_.empty() && (!has_inputs_first_ || tensors_.size() == 1));
  num_inputs_ = has_inputs_first_ ? tensors_.front().num_rows : tensors_.front().width;
  for (const StoredTensor& tensor : tensors_) {
    ATOLL_CHECK(has_inputs_first_ || tensor.width == num_inputs_);
    num_outputs_ += has_inputs_first_ ? tensor.width : tensor.num_rows;
    const auto block = static_cast<int64_t>(codec::ggml_block(tensor.type).num_values);
    least_depth_ = std::max(least_depth_, block);
  }
}

StoredMatrix::Place StoredMatrix::place_of(int64_t output) const {
  const StoredTensor* tensor = tensors_.data();
  while (output >= tensor->num_rows) {
    output -= tensor->num_rows;
    ++tensor;
  }
  return {tensor, output};
}

void StoredMatrix::read_output(int64_t output, float* row_K) const {
  if (has_inputs_first_) {
    for (int64_t k = 0; k < num_inputs_; ++k) tensors_.front().read(k, output, {row_K + k, 1});
    return;
  }
  const Place place = place_of(output);
  place.tensor->read(place.row, 0, {row_K, static_cast<size_t>(num_inputs_)});
}

/// A block of rows, by all panels of some outputs.
class StoredMatrix::Block {
 public:
  Block(const StoredMatrix& matrix, const ProductKernel& kernel, int64_t num_rows,
        const float* x_MK, float* out_MN)
      : matrix_(matrix),
        kernel_(kernel),
        num_rows_(num_rows),
        x_MK_(x_MK),
        out_MN_(out_MN),
        panels_(matrix, kernel),
        tiles_(
            uninitialised(num_rows * (num_rows <= kernel.max_rows ? matrix.num_inputs_ : kDepth))) {
  }

  void multiply(int64_t first_panel, int64_t last_panel) {
    const int64_t inputs = matrix_.num_inputs_;
    if (num_rows_ <= kernel_.max_rows) {
      // What counts is to read the weights as they lie.
      gather(0, inputs);
      for (int64_t panel = first_panel; panel < last_panel; ++panel) {
        panels_.choose(panel * kernel_.lanes);
        for (int64_t k = 0; k < inputs; k += matrix_.least_depth_) {
          multiply_panel(panel * kernel_.lanes, k, std::min(matrix_.least_depth_, inputs - k),
                         tiles_.get() + k * num_rows_);
        }
      }
      return;
    }
    for (int64_t k = 0; k < inputs; k += kDepth) {
      const int64_t depth = std::min(kDepth, inputs - k);
      gather(k, depth);
      for (int64_t panel = first_panel; panel < last_panel; ++panel) {
        panels_.choose(panel * kernel_.lanes);
        multiply_panel(panel * kernel_.lanes, k, depth, tiles_.get());
      }
    }
  }

 private:
  /// Inputs [k, k + depth) of x, tile by tile, as the kernel reads them.
  void gather(int64_t k, int64_t depth) {
    for (int64_t row = 0; row < num_rows_; ++row) {
      const int64_t begin = row / kernel_.max_rows * kernel_.max_rows;
      const int64_t count = std::min(kernel_.max_rows, num_rows_ - begin);
      float* const to = tiles_.get() + begin * depth + (row - begin);
      const float* const from = x_MK_ + row * matrix_.num_inputs_ + k;
      for (int64_t i = 0; i < depth; ++i) to[i * count] = from[i];
    }
  }

  void multiply_panel(int64_t output, int64_t k, int64_t depth, const float* tiles) {
    const int64_t stride = matrix_.num_outputs_;
    const int64_t width = std::min(kernel_.lanes, stride - output);
    const float* const panel = panels_.at(k, depth);
    for (int64_t row = 0; row < num_rows_; row += kernel_.max_rows) {
      const int64_t count = std::min(kernel_.max_rows, num_rows_ - row);
      float* const out = out_MN_ + row * stride + output;
      const float* const tile = tiles + row * depth;
      if (width == kernel_.lanes) {
        kernel_.multiply(count, depth, tile, count, panel, kernel_.lanes, out, stride, k > 0);
        continue;
      }
      // The last outputs are fewer than lanes.
      std::array<float, kMaxLanes * kMaxRows> wide{};
      for (int64_t i = 0; i < count && k > 0; ++i) {
        std::copy_n(out + i * stride, width, &wide[static_cast<size_t>(i * kernel_.lanes)]);
      }
      kernel_.multiply(count, depth, tile, count, panel, kernel_.lanes, wide.data(), kernel_.lanes,
                       k > 0);
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(&wide[static_cast<size_t>(i * kernel_.lanes)], width, out + i * stride);
      }
    }
  }

  const StoredMatrix& matrix_;
  const ProductKernel& kernel_;
  int64_t num_rows_;
  const float* x_MK_;
  float* out_MN_;
  Panels panels_;
  std::unique_ptr<float[]> tiles_;
};

void StoredMatrix::multiply(int64_t num_rows, const float* x_MK, float* out_MN,
                            const ProductKernel& kernel) const {
  const int64_t block_rows = kTiles * kernel.max_rows;
  const int64_t num_blocks = (num_rows + block_rows - 1) / block_rows;
  const int64_t num_panels = (num_outputs_ + kernel.lanes - 1) / kernel.lanes;
  const int64_t operations = std::min(num_rows, block_rows) * num_inputs_ * kernel.lanes;
  const int64_t grain = std::max<int64_t>(1, kLeastOperations / std::max<int64_t>(1, operations));
  at::parallel_for(0, num_blocks * num_panels, grain, [&](int64_t first, int64_t last) {
    while (first < last) {
      const int64_t block = first / num_panels;
      const int64_t begin = block * block_rows;
      const int64_t until = std::min(last, (block + 1) * num_panels);
      Block(*this, kernel, std::min(block_rows, num_rows - begin), x_MK + begin * num_inputs_,
            out_MN + begin * num_outputs_)
          .multiply(first - block * num_panels, until - block * num_panels);
      first = until;
    }
  });
}

}  // namespace atl::model
