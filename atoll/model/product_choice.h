#pragma once
// Which library multiplies matrices of a shape. It is measured once for a machine and remembered
// (product_memory.h), since the bits of a result hang on it: a run that resumes, and all processes
// on a machine, must choose alike. Decisions alone, without LibTorch: who multiplies and looks at
// the clock is passed in (matmul.cpp). One thread at a time.
//
// Shapes: out_MN = a_MK b_KN.
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "atoll/model/product_memory.h"

namespace atl::model {

enum class Library : uint8_t {
  kMkl,      // Or the BLAS that LibTorch has in its place.
  kOneDnn,   // Into BF16 where both factors are BF16.
  kWidened,  // BF16 widened to FP32, and the product of that.
  kTiles,    // Atoll's own (tile_products.h).
};
inline constexpr std::array<std::string_view, 4> kLibraryNames{"mkl", "onednn", "widened", "tiles"};
std::string_view name_of(Library library);
std::optional<Library> library_named(std::string_view name);

/// Of the factors, and of the result.
enum class ProductTypes : uint8_t { kFp32, kBf16, kBf16ToFp32 };

struct ProductShape {
  ProductTypes types;
  int64_t m;
  int64_t n;
  int64_t k;
  bool a_is_transposed;
  bool b_is_transposed;
  bool accumulates;
  int num_threads;
};

/// Sizes rounded up to powers of two: rows come in many numbers, and few of them are measured.
ProductShape class_of(const ProductShape& shape);
/// What is remembered under: "bf16-fp32 m=4096 n=2048 k=512 a=rows b=columns adds threads=2".
std::string text_of(const ProductShape& shape);
/// As much of it as is measured, by halves of its longest side: some milliseconds of work.
ProductShape measured_part(const ProductShape& shape);

/// Multiplies once, and says how many seconds that took.
using ProductRun = std::function<double(Library)>;

/// The quickest of several by their best runs, which alternate. One is favoured, tiles or else the
/// first: another has to gain kLeastGain on it, and be quicker in two rounds of three, to be taken:
/// less is noise.
Library quickest(std::span<const Library> candidates, const ProductRun& run);
inline constexpr double kLeastGain = 0.05;

/// Where choices come from.
struct ProductPolicy {
  std::optional<Library> pinned;              // This one wherever it can do it.
  std::optional<std::filesystem::path> file;  // Measured, and remembered here.
};  // With neither the usual ones are taken and nothing is measured.

/// `setting` is ATOLL_PRODUCTS: "measured" or nothing, "usual", a library, or a file's path, which
/// has a slash. `cache` and `home` are XDG_CACHE_HOME and HOME; each may be null. `machine` is all
/// that speeds hang on. Throws UsageError.
ProductPolicy product_policy(const char* setting, const char* cache, const char* home,
                             std::string_view machine);

class ProductChoices {
 public:
  explicit ProductChoices(ProductPolicy policy);

  /// Of `candidates`, of which the first is the usual one. `prepare` makes what a measurement
  /// needs, for measured_part() of the shape; it is called only when there is one. Where nothing
  /// can be remembered the usual one is taken. The same shape always has the same answer.
  Library choose(const ProductShape& shape, std::span<const Library> candidates,
                 const std::function<ProductRun(const ProductShape&)>& prepare);

 private:
  Library look_up(const ProductShape& shape, std::span<const Library> candidates,
                  const std::function<ProductRun(const ProductShape&)>& prepare);

  ProductPolicy policy_;
  std::optional<ProductMemory> memory_;
  std::map<std::array<int64_t, 8>, Library> chosen_;  // What this process has asked for.
};

}  // namespace atl::model
