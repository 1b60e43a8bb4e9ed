#include "atoll/model/product_library.h"

#include <ATen/Version.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/model/composite.h"
#include "atoll/model/tile_products.h"

// LibTorch's own way to oneDNN, which no header of its names. Without it, or where it is not exact,
// everything goes LibTorch's usual way.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out,
                                         float beta, float alpha);
}

// MKL's, which LibTorch's builds for x86 have in them; columns first, as in Fortran.
extern "C" __attribute__((weak)) void gemm_bf16bf16f32_(const char* transa, const char* transb,
                                                        const int* m, const int* n, const int* k,
                                                        const float* alpha, const c10::BFloat16* a,
                                                        const int* lda, const c10::BFloat16* b,
                                                        const int* ldb, const float* beta, float* c,
                                                        const int* ldc);

namespace atl::model {
namespace {

bool is_amd() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

/// What oneDNN has BF16 for; without it LibTorch multiplies number by number.
bool has_wide_vectors() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("x86-64-v4");
#else
  return true;  // LibTorch knows better.
#endif
}

bool has_bf16_arithmetic() {
#if defined(__x86_64__)
  return has_tiles(at::kBFloat16);
#else
  return true;
#endif
}

/// A matrix as Fortran's products read it.
struct Layout {
  bool is_transposed;
  int stride;
};

std::optional<Layout> layout_of(const at::Tensor& matrix) {
  for (const int64_t rows : {0, 1}) {
    const int64_t columns = 1 - rows;
    const bool is_dense = matrix.size(columns) <= 1 || matrix.stride(columns) == 1;
    const int64_t width = std::max<int64_t>(matrix.size(columns), 1);
    const int64_t stride = matrix.size(rows) <= 1 ? width : matrix.stride(rows);
    if (is_dense && stride >= width && stride <= std::numeric_limits<int>::max()) {
      return Layout{rows == 1, static_cast<int>(stride)};
    }
  }
  return std::nullopt;
}

/// out_MN is FP32, with contiguous rows. Its columns are the rows of Fortran's result b^T a^T.
void multiply_by_mkl(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                     bool accumulates) {
  const std::optional<Layout> a = layout_of(a_MK);
  const std::optional<Layout> b = layout_of(b_KN);
  const int m = static_cast<int>(out_MN.size(0));
  const int n = static_cast<int>(out_MN.size(1));
  const int k = static_cast<int>(a_MK.size(1));
  const int out_stride = m <= 1 ? n : static_cast<int>(out_MN.stride(0));
  const float one = 1;
  const float kept = accumulates ? 1 : 0;
  gemm_bf16bf16f32_(b->is_transposed ? "T" : "N", a->is_transposed ? "T" : "N", &n, &m, &k, &one,
                    b_KN.const_data_ptr<c10::BFloat16>(), &b->stride,
                    a_MK.const_data_ptr<c10::BFloat16>(), &a->stride, &kept,
                    out_MN.mutable_data_ptr<float>(), &out_stride);
}

/// What LibTorch itself takes for the types; it ends in BF16 where the factors are.
void multiply_by_libtorch(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                          bool accumulates) {
  if (a_MK.scalar_type() == out_MN.scalar_type()) {
    return composite::matmul(out_MN, a_MK, b_KN, accumulates);
  }
  const at::Tensor made_MN = at::mm(a_MK, b_KN);
  accumulates ? out_MN.add_(made_MN) : out_MN.copy_(made_MN);
}

at::Tensor with_layout(const at::Tensor& matrix) {
  return layout_of(matrix) ? matrix : matrix.contiguous();
}

void multiply_fp32(Library library, const at::Tensor& out_MN, const at::Tensor& a_MK,
                   const at::Tensor& b_KN, bool accumulates) {
  if (library == Library::kOneDnn && out_MN.is_contiguous()) {
    at::native::mkldnn_matmul(a_MK, b_KN, out_MN, accumulates ? 1.0F : 0.0F, 1.0F);
  } else {
    multiply_by_libtorch(out_MN, a_MK, b_KN, accumulates);
  }
}

/// Widened or by MKL, which end in FP32.
void multiply_bf16(Library library, const at::Tensor& out_MN, const at::Tensor& a_MK,
                   const at::Tensor& b_KN, bool accumulates) {
  if (library == Library::kMkl) {
    return multiply_by_mkl(out_MN, with_layout(a_MK), with_layout(b_KN), accumulates);
  }
  multiply_fp32(libraries_for(ProductTypes::kFp32).front(), out_MN, a_MK.to(at::kFloat),
                b_KN.to(at::kFloat), accumulates);
}

/// LibTorch may be built without a library, and some versions round FP32 that they multiply to
/// BF16.
bool is_exact(Library library, ProductTypes types) {
  constexpr int64_t kSize = 48;
  const at::ScalarType in = types == ProductTypes::kFp32 ? at::kFloat : at::kBFloat16;
  const at::ScalarType out = types == ProductTypes::kBf16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor a_MK = waves(kSize, kSize).to(in);
  const at::Tensor exact_MN = at::mm(a_MK.to(at::kDouble), a_MK.t().to(at::kDouble));
  const bool is_rounded = out == at::kBFloat16 || (in != at::kFloat && library == Library::kOneDnn);
  const double relative = is_rounded ? 1.0 / 256 : 1e-5;
  for (const bool accumulates : {false, true}) {
    if (accumulates && out == at::kBFloat16) continue;
    const at::Tensor out_MN = at::full({kSize, kSize}, 2, out);
    try {
      multiply_by(library, out_MN, a_MK, a_MK.t(), accumulates);
    } catch (const c10::Error&) {
      return false;
    }
    const at::Tensor made_MN = out_MN.to(at::kDouble).sub(accumulates ? 2 : 0);
    if (!at::allclose(made_MN, exact_MN, relative, 1e-5)) return false;
  }
  return true;
}

bool is_there(Library library, ProductTypes types) {
  const bool is_fp32 = types == ProductTypes::kFp32;
  switch (library) {
    case Library::kMkl:
      return is_fp32 || gemm_bf16bf16f32_ != nullptr;
    case Library::kOneDnn:
      return is_fp32 ? at::native::mkldnn_matmul != nullptr : has_wide_vectors();
    case Library::kWidened:
      return !is_fp32;
    case Library::kTiles:
      return has_tiles(is_fp32 ? at::kFloat : at::kBFloat16);
  }
  return false;
}

/// What the CPU's kind suggests, best first; MKL, or else what is widened, is always there. MKL's
/// FP32 code for AMD's CPUs leaves half of AVX-512 unused.
std::vector<Library> suggested(ProductTypes types) {
  using enum Library;
  if (types == ProductTypes::kFp32) {
    if (is_amd() && has_wide_vectors()) return {kOneDnn, kMkl};
    return {kMkl, kOneDnn, kTiles};
  }
  if (!has_bf16_arithmetic()) return {kWidened, kMkl, kOneDnn};
  if (types == ProductTypes::kBf16 || is_amd()) return {kOneDnn, kMkl, kWidened, kTiles};
  return {kMkl, kOneDnn, kWidened, kTiles};
}

std::vector<Library> usable(ProductTypes types) {
  const bool is_fp32 = types == ProductTypes::kFp32;
  const Library sure = is_fp32 ? Library::kMkl : Library::kWidened;
  std::vector<Library> found;
  for (const Library library : suggested(types)) {
    if (library == sure || (is_there(library, types) && is_exact(library, types))) {
      found.push_back(library);
    }
  }
  return found;
}

}  // namespace

bool has_dense_rows(const at::Tensor& out_MN) {
  return out_MN.is_contiguous() || (out_MN.stride(1) == 1 && out_MN.stride(0) >= out_MN.size(1));
}

std::optional<ProductTypes> product_types(const at::Tensor& out_MN, const at::Tensor& a_MK,
                                          const at::Tensor& b_KN) {
  const at::ScalarType in = a_MK.scalar_type();
  const at::ScalarType out = out_MN.scalar_type();
  if (b_KN.scalar_type() != in) return std::nullopt;
  if (in == at::kFloat && out == at::kFloat) return ProductTypes::kFp32;
  if (in == at::kBFloat16 && out == at::kBFloat16) return ProductTypes::kBf16;
  if (in == at::kBFloat16 && out == at::kFloat) return ProductTypes::kBf16ToFp32;
  return std::nullopt;
}

const std::vector<Library>& libraries_for(ProductTypes types) {
  static const std::vector<Library> fp32 = usable(ProductTypes::kFp32);
  static const std::vector<Library> bf16 = usable(ProductTypes::kBf16);
  static const std::vector<Library> bf16_to_fp32 = usable(ProductTypes::kBf16ToFp32);
  if (types == ProductTypes::kFp32) return fp32;
  return types == ProductTypes::kBf16 ? bf16 : bf16_to_fp32;
}

void multiply_by(Library library, const at::Tensor& out_MN, const at::Tensor& a_MK,
                 const at::Tensor& b_KN, bool accumulates) {
  ATOLL_CHECK(has_dense_rows(out_MN));
  const ProductTypes types = *product_types(out_MN, a_MK, b_KN);
  const bool is_short = types != ProductTypes::kBf16 || a_MK.size(1) <= kMostDepthIntoBf16;
  if (library == Library::kTiles && is_short) {
    multiply_by_tiles(out_MN, with_layout(a_MK), with_layout(b_KN), accumulates);
  } else if (types == ProductTypes::kFp32) {
    multiply_fp32(library, out_MN, a_MK, b_KN, accumulates);
  } else if (library == Library::kOneDnn) {
    multiply_by_libtorch(out_MN, a_MK, b_KN, accumulates);
  } else if (types == ProductTypes::kBf16ToFp32) {
    multiply_bf16(library, out_MN, a_MK, b_KN, accumulates);
  } else {
    const at::Tensor wide_MN = at::empty(out_MN.sizes(), out_MN.options().dtype(at::kFloat));
    multiply_by(library, wide_MN, a_MK, b_KN, /*accumulates=*/false);
    out_MN.copy_(wide_MN);
  }
}

at::Tensor waves(int64_t rows, int64_t columns) {
  return at::arange(rows * columns, at::kFloat).sin_().view({rows, columns});
}

std::string product_machine() {
  std::string text = fmt::format("LibTorch {}, {}, {}, {}\n", TORCH_VERSION, at::get_mkl_version(),
                                 at::get_mkldnn_version(), at::get_cpu_capability());
  // Of the first core, and nothing that changes from one look to the next, as its frequency does.
  constexpr std::array<std::string_view, 10> kLasting{
      "vendor_id", "cpu family",      "model",    "model name", "stepping",
      "flags",     "CPU implementer", "CPU part", "Features",   "CPU variant",
  };
  std::ifstream cores("/proc/cpuinfo");
  for (std::string line; std::getline(cores, line) && !line.empty();) {
    const std::string_view name = std::string_view(line).substr(0, line.find_first_of("\t:"));
    if (std::ranges::find(kLasting, name) != kLasting.end()) text += line + '\n';
  }
  return text;
}

}  // namespace atl::model
