#include "atoll/model/kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/model/simd.h"

namespace atl::model {
namespace {

using Lanes __attribute__((vector_size(64))) = float;

ATOLL_INLINE void read_lanes(const float* x, Lanes& values) {
  std::memcpy(&values, x, sizeof(values));
}

ATOLL_INLINE void read_lanes(const c10::BFloat16* x, Lanes& values) {
  using Halves __attribute__((vector_size(32))) = uint16_t;
  using Words __attribute__((vector_size(64))) = uint32_t;
  Halves halves;
  std::memcpy(&halves, x, sizeof(halves));
  values = reinterpret_cast<Lanes>(__builtin_convertvector(halves, Words) << 16);
}

/// In 16 sums however wide a register is: a model is the same on all processors, and a chain of
/// them gives the bits of one.
template <typename T>
ATOLL_INLINE float sum_of_squares(const T* x, int64_t width) {
  constexpr int64_t kLanes = 16;
  Lanes sums = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    Lanes values;
    read_lanes(x + i, values);
    sums += values * values;
  }
  for (int64_t lane = 0; i < width; ++i, ++lane) sums[lane] += widen(x[i]) * widen(x[i]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

template <typename T>
ATOLL_CLONES void rms_norm_rows(int64_t count, int64_t width, const T* x, const T* delta,
                                const float* weight, float epsilon, T* sum, T* y,
                                float* inverse_rms) {
  for (int64_t row = 0; row < count; ++row) {
    const T* source = x + row * width;
    if (delta != nullptr) {
      const T* added = delta + row * width;
      T* target = sum + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) target[i] = narrow<T>(widen(source[i]) + widen(added[i]));
      source = target;
    }
    const float squares = sum_of_squares(source, width);
    const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(width) + epsilon);
    inverse_rms[row] = inverse;
    T* result = y + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      result[i] = narrow<T>(widen(source[i]) * inverse * weight[i]);
    }
  }
}

template <typename T>
ATOLL_CLONES void rms_norm_backward_rows(int64_t count, int64_t width, const T* dy, const T* dsum,
                                         const T* x, const float* weight, const float* inverse_rms,
                                         T* dx, float* dweight, T* y) {
  for (int64_t row = 0; row < count; ++row) {
    const T* dy_row = dy + row * width;
    const T* x_row = x + row * width;
    T* dx_row = dx + row * width;
    const float inverse = inverse_rms[row];
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < width; ++i) dot += widen(dy_row[i]) * weight[i] * widen(x_row[i]);
    const float along = dot * inverse * inverse * inverse / static_cast<float>(width);
    if (dsum != nullptr) {
      const T* dsum_row = dsum + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        dx_row[i] = narrow<T>(widen(dsum_row[i]) + widen(dy_row[i]) * weight[i] * inverse -
                              widen(x_row[i]) * along);
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        dx_row[i] = narrow<T>(widen(dy_row[i]) * weight[i] * inverse - widen(x_row[i]) * along);
      }
    }
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) dweight[i] += widen(dy_row[i]) * widen(x_row[i]) * inverse;
    if (y == nullptr) continue;
    T* y_row = y + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) y_row[i] = narrow<T>(widen(x_row[i]) * inverse * weight[i]);
  }
}

template <typename T>
ATOLL_CLONES void swiglu_rows(int64_t count, int64_t width, const T* gate_up, T* y) {
  for (int64_t row = 0; row < count; ++row) {
    const T* gates = gate_up + row * 2 * width;
    const T* ups = gates + width;
    T* result = y + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float gate = widen(gates[i]);
      result[i] = narrow<T>(gate / (1.0F + fast_exp(-gate)) * widen(ups[i]));
    }
  }
}

ATOLL_INLINE float gelu_tanh_of(float x) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691216F;
  // 1 + tanh(u) = 2 / (1 + e^-2u).
  return x / (1.0F + fast_exp(-kTwiceRootOfTwoOverPi * (x + 0.044715F * x * x * x)));
}

ATOLL_CLONES void gelu_tanh_rows(int64_t count, int64_t width, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count * width; ++i) y[i] = gelu_tanh_of(x[i]);
}

ATOLL_CLONES void geglu_rows(int64_t count, int64_t width, const float* gate_up, float* y) {
  for (int64_t row = 0; row < count; ++row) {
    const float* gate = gate_up + row * 2 * width;
    const float* up = gate + width;
    float* result = y + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) result[i] = gelu_tanh_of(gate[i]) * up[i];
  }
}

ATOLL_CLONES void clamped_swiglu_rows(int64_t count, int64_t width, const float* gate_up,
                                      float* y) {
  constexpr float kLimit = 7;
#pragma omp simd
  for (int64_t i = 0; i < count * width; ++i) {
    const float gate = gate_up[2 * i] > kLimit ? kLimit : gate_up[2 * i];
    const float below = gate_up[2 * i + 1] > kLimit ? kLimit : gate_up[2 * i + 1];
    const float up = below < -kLimit ? -kLimit : below;
    y[i] = (up + 1) * gate / (1.0F + fast_exp(-1.702F * gate));
  }
}

template <typename T, bool kMakesY>
ATOLL_CLONES void swiglu_backward_rows(int64_t count, int64_t width, const T* dy, const T* gate_up,
                                       T* dgate_up, T* y) {
  for (int64_t row = 0; row < count; ++row) {
    const T* gates = gate_up + row * 2 * width;
    const T* ups = gates + width;
    const T* dy_row = dy + row * width;
    T* dgate = dgate_up + row * 2 * width;
    T* dup = dgate + width;
    T* result = kMakesY ? y + row * width : nullptr;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float gate = widen(gates[i]);
      const float up = widen(ups[i]);
      const float dy_value = widen(dy_row[i]);
      const float divisor = 1.0F + fast_exp(-gate);
      const float sigmoid = 1.0F / divisor;
      const float silu = gate * sigmoid;
      dup[i] = narrow<T>(dy_value * silu);
      dgate[i] = narrow<T>(dy_value * up * (sigmoid + silu * (1.0F - sigmoid)));
      if constexpr (kMakesY) result[i] = narrow<T>(gate / divisor * up);
    }
  }
}

template <typename T>
ATOLL_CLONES void rotate_rows(const HeadShape& shape, Positions positions, int64_t begin,
                              int64_t end, T* x, const float* cos_TR, const float* sin_TR,
                              float direction) {
  const int64_t half = positions.rotary_size / 2;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t position = row % positions.count;
    const float* cosine = cos_TR + position * half;
    const float* sine = sin_TR + position * half;
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      T* low = x + row * shape.stride + head * shape.head_size;
      T* high = low + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float a = widen(low[i]);
        const float b = widen(high[i]);
        const float s = sine[i] * direction;
        low[i] = narrow<T>(a * cosine[i] - b * s);
        high[i] = narrow<T>(b * cosine[i] + a * s);
      }
    }
  }
}

/// Calls part(begin, end, partial) for fixed blocks of rows, each with a zeroed row of its own, and
/// adds those to `target` in order: the sum does not depend on the number of threads.
template <typename Part>
void sum_in_blocks(int64_t num_rows, int64_t width, float* target, const Part& part) {
  constexpr int64_t kBlocks = 16;
  const int64_t block_rows = std::max<int64_t>(1, (num_rows + kBlocks - 1) / kBlocks);
  std::vector<float> partial(static_cast<size_t>(kBlocks * width));
  const int64_t blocks_per_task = std::max<int64_t>(1, grain(width) / block_rows);
  at::parallel_for(0, kBlocks, blocks_per_task, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = std::min(num_rows, block * block_rows);
      const int64_t end = std::min(num_rows, begin + block_rows);
      part(begin, end, &partial[static_cast<size_t>(block * width)]);
    }
  });
  for (int64_t block = 0; block < kBlocks; ++block) {
    for (int64_t i = 0; i < width; ++i) {
      target[i] += partial[static_cast<size_t>(block * width + i)];
    }
  }
}

/// `kernel` on parts of the rows, of which one has `in_width` elements before and rows.width after.
template <typename T, typename Kernel>
void map_rows(Rows rows, int64_t in_width, const Kernel& kernel, const T* x, T* y) {
  at::parallel_for(0, rows.count, grain(rows.width), [&](int64_t begin, int64_t end) {
    kernel(end - begin, rows.width, x + begin * in_width, y + begin * rows.width);
  });
}

}  // namespace

template <typename T>
void rms_norm_forward(Rows rows, const T* x, const T* delta, const float* weight, float epsilon,
                      T* sum, T* y, float* inverse_rms) {
  at::parallel_for(0, rows.count, grain(rows.width), [&](int64_t begin, int64_t end) {
    const int64_t offset = begin * rows.width;
    rms_norm_rows(end - begin, rows.width, x + offset, delta == nullptr ? nullptr : delta + offset,
                  weight, epsilon, sum == nullptr ? nullptr : sum + offset, y + offset,
                  inverse_rms + begin);
  });
}

template <typename T>
void rms_norm_backward(Rows rows, const T* dy, const T* dsum, const T* x, const float* weight,
                       const float* inverse_rms, T* dx, float* dweight, T* y) {
  sum_in_blocks(rows.count, rows.width, dweight, [&](int64_t begin, int64_t end, float* partial) {
    const int64_t offset = begin * rows.width;
    rms_norm_backward_rows(
        end - begin, rows.width, dy + offset, dsum == nullptr ? nullptr : dsum + offset, x + offset,
        weight, inverse_rms + begin, dx + offset, partial, y == nullptr ? nullptr : y + offset);
  });
}

template <typename T>
void head_norm_forward(const HeadShape& shape, const T* x, const float* weight, float epsilon, T* y,
                       float* inverse_rms) {
  at::parallel_for(0, shape.num_rows, grain(shape.stride), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      rms_norm_rows<T>(shape.num_heads, shape.head_size, x + row * shape.stride, nullptr, weight,
                       epsilon, nullptr, y + row * shape.stride,
                       inverse_rms + row * shape.num_heads);
    }
  });
}

template <typename T>
void head_norm_backward(const HeadShape& shape, const T* dy, const T* x, const float* weight,
                        const float* inverse_rms, T* dx, float* dweight) {
  const auto rows = [&](int64_t begin, int64_t end, float* partial) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t offset = row * shape.stride;
      rms_norm_backward_rows<T>(shape.num_heads, shape.head_size, dy + offset, nullptr, x + offset,
                                weight, inverse_rms + row * shape.num_heads, dx + offset, partial,
                                nullptr);
    }
  };
  sum_in_blocks(shape.num_rows, shape.head_size, dweight, rows);
}

template <typename T>
void swiglu_forward(Rows rows, const T* gate_up, T* y) {
  map_rows(rows, 2 * rows.width, swiglu_rows<T>, gate_up, y);
}

void gelu_tanh_forward(Rows rows, const float* x, float* y) {
  map_rows(rows, rows.width, gelu_tanh_rows, x, y);
}

void geglu_forward(Rows rows, const float* gate_up, float* y) {
  map_rows(rows, 2 * rows.width, geglu_rows, gate_up, y);
}

void clamped_swiglu_forward(Rows rows, const float* gate_up, float* y) {
  map_rows(rows, 2 * rows.width, clamped_swiglu_rows, gate_up, y);
}

template <typename T>
void swiglu_backward(Rows rows, const T* dy, const T* gate_up, T* dgate_up, T* y) {
  at::parallel_for(0, rows.count, grain(rows.width), [&](int64_t begin, int64_t end) {
    const auto make = [&](const auto& kernel, T* made) {
      kernel(end - begin, rows.width, dy + begin * rows.width, gate_up + begin * 2 * rows.width,
             dgate_up + begin * 2 * rows.width, made);
    };
    if (y != nullptr) {
      make(swiglu_backward_rows<T, true>, y + begin * rows.width);
    } else {
      make(swiglu_backward_rows<T, false>, nullptr);
    }
  });
}

template <typename T>
void rotate(const HeadShape& shape, Positions positions, T* x, const float* cos_TR,
            const float* sin_TR, Turn turn) {
  const float direction = turn == Turn::kBackwards ? -1.0F : 1.0F;
  at::parallel_for(0, shape.num_rows, grain(shape.num_heads * shape.head_size),
                   [&](int64_t begin, int64_t end) {
                     rotate_rows(shape, positions, begin, end, x, cos_TR, sin_TR, direction);
                   });
}

template <typename T>
void embedding_backward(Rows rows, const int64_t* tokens, const T* dy, float* dweight) {
  // Threads share out the columns: every sum keeps the order of the rows.
  at::parallel_for(0, rows.width, std::max<int64_t>(16, grain(rows.count)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = 0; row < rows.count; ++row) {
                       float* target = dweight + tokens[row] * rows.width;
                       const T* source = dy + row * rows.width;
#pragma omp simd
                       for (int64_t i = begin; i < end; ++i) target[i] += widen(source[i]);
                     }
                   });
}

#define ATOLL_INSTANTIATE(T)                                                                       \
  template void rms_norm_forward<T>(Rows, const T*, const T*, const float*, float, T*, T*,         \
                                    float*);                                                       \
  template void rms_norm_backward<T>(Rows, const T*, const T*, const T*, const float*,             \
                                     const float*, T*, float*, T*);                                \
  template void head_norm_forward<T>(const HeadShape&, const T*, const float*, float, T*, float*); \
  template void head_norm_backward<T>(const HeadShape&, const T*, const T*, const float*,          \
                                      const float*, T*, float*);                                   \
  template void swiglu_forward<T>(Rows, const T*, T*);                                             \
  template void swiglu_backward<T>(Rows, const T*, const T*, T*, T*);                              \
  template void rotate<T>(const HeadShape&, Positions, T*, const float*, const float*, Turn);      \
  template void embedding_backward<T>(Rows, const int64_t*, const T*, float*)
ATOLL_INSTANTIATE(float);
ATOLL_INSTANTIATE(c10::BFloat16);
#undef ATOLL_INSTANTIATE

}  // namespace atl::model
