#include "atoll/model/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/base/thread_time.h"
#include "atoll/model/composite.h"
#include "atoll/model/product_library.h"

namespace atl::model {
namespace {

/// Multiplications from which on oneDNN's cost for a call, some 15 us, is small, and a choice pays.
constexpr int64_t kLarge = int64_t{1} << 22;

at::Tensor factor(int64_t rows, int64_t columns, bool is_transposed, at::ScalarType type) {
  const at::Tensor values = is_transposed ? waves(columns, rows) : waves(rows, columns);
  return is_transposed ? values.to(type).t() : values.to(type);
}

/// On matrices of its own, laid out like those of the shape. What a single thread does costs its
/// core the same however many others want it; of several only the clock tells.
ProductRun measurement_of(const ProductShape& shape) {
  const bool is_fp32 = shape.types == ProductTypes::kFp32;
  const at::ScalarType in = is_fp32 ? at::kFloat : at::kBFloat16;
  const at::ScalarType out = shape.types == ProductTypes::kBf16 ? at::kBFloat16 : at::kFloat;
  return [a_MK = factor(shape.m, shape.k, shape.a_is_transposed, in),
          b_KN = factor(shape.k, shape.n, shape.b_is_transposed, in),
          out_MN = at::zeros({shape.m, shape.n}, out), shape](Library library) {
    const auto now = [&] {
      return shape.num_threads == 1 ? thread_cpu_seconds()
                                    : seconds(SystemClock().now().time_since_epoch());
    };
    const double begin = now();
    multiply_by(library, out_MN, a_MK, b_KN, shape.accumulates);
    return now() - begin;
  };
}

/// oneDNN rounds to BF16 on the way to FP32: as good as any for what is added to a sum of many,
/// but not for logits.
std::vector<Library> candidates(ProductTypes types, bool accumulates) {
  std::vector<Library> libraries = libraries_for(types);
  if (types == ProductTypes::kBf16ToFp32 && !accumulates) {
    std::erase(libraries, Library::kOneDnn);
  }
  return libraries;
}

/// The process's. Who asks while another thread measures waits, and disturbs nothing.
class SharedChoices {
 public:
  Library choose(const ProductShape& shape) {
    const MutexLock lock(mutex_);
    return choices_.choose(shape, candidates(shape.types, shape.accumulates), measurement_of);
  }

 private:
  Mutex mutex_;
  ProductChoices choices_ ATOLL_GUARDED_BY(mutex_){
      product_policy(std::getenv("ATOLL_PRODUCTS"), std::getenv("XDG_CACHE_HOME"),
                     std::getenv("HOME"), product_machine())};
};

bool is_transposed(const at::Tensor& matrix) { return matrix.size(1) > 1 && matrix.stride(1) != 1; }

Library library_for(ProductTypes types, const at::Tensor& out_MN, const at::Tensor& a_MK,
                    const at::Tensor& b_KN, bool accumulates) {
  if (out_MN.numel() * a_MK.size(1) < kLarge) {
    return types == ProductTypes::kFp32 ? Library::kMkl : candidates(types, accumulates).front();
  }
  static SharedChoices choices;
  return choices.choose({.types = types,
                         .m = out_MN.size(0),
                         .n = out_MN.size(1),
                         .k = a_MK.size(1),
                         .a_is_transposed = is_transposed(a_MK),
                         .b_is_transposed = is_transposed(b_KN),
                         .accumulates = accumulates,
                         .num_threads = at::get_num_threads()});
}

}  // namespace

void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates) {
  if (!has_dense_rows(out_MN)) {  // (inputs, outputs) in memory: libraries write rows.
    ATOLL_CHECK(has_dense_rows(out_MN.t()), "a product's rows or columns must be dense");
    matmul(out_MN.t(), b_KN.t(), a_MK.t(), accumulates);
    return;
  }
  const auto types = product_types(out_MN, a_MK, b_KN);
  if (!types || !out_MN.is_cpu()) {
    composite::matmul(out_MN, a_MK, b_KN, accumulates);
  } else if (out_MN.numel() > 0) {
    multiply_by(library_for(*types, out_MN, a_MK, b_KN, accumulates), out_MN, a_MK, b_KN,
                accumulates);
  }
}

at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN) {
  const at::Tensor out_MN = at::empty({a_MK.size(0), b_KN.size(1)}, a_MK.options());
  matmul(out_MN, a_MK, b_KN);
  return out_MN;
}

}  // namespace atl::model
