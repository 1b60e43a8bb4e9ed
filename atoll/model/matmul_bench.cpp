// Products by each library that there is, FP32 and BF16: what matmul() chooses from. Those of a
// training step of a model of 34 M parameters: of each matrix the output, the gradient of the
// input, and that of the weight, which is added in FP32. Run with OMP_NUM_THREADS=1 for one core,
// and with ATOLL_BENCH_ROWS=4096 for the positions of a real step; as a test it has few.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "atoll/model/matmul.h"
#include "atoll/model/product_library.h"

namespace {

using atl::model::Library;
using atl::model::ProductTypes;

struct Matrix {
  const char* name;
  int64_t inputs;
  int64_t outputs;
  int64_t most_rows = int64_t{1} << 30;  // The head goes slice by slice.
};
constexpr Matrix kMatrices[] = {{"qkv", 512, 1536},
                                {"output", 512, 512},
                                {"gate_up", 512, 2816},
                                {"down", 1408, 512},
                                {"head", 512, 8192, /*most_rows=*/256}};

int64_t num_rows() {
  const char* const rows = std::getenv("ATOLL_BENCH_ROWS");
  return rows == nullptr ? 32 : std::max(std::atoll(rows), 1LL);
}

enum class Pass { kForward, kInputGradient, kWeightGradient };
constexpr const char* kPassNames[] = {"forward", "input_gradient", "weight_gradient"};

/// out_MN = a_MK b_KN.
struct Product {
  at::Tensor out_MN;
  at::Tensor a_MK;
  at::Tensor b_KN;
  bool accumulates;

  Product(const Matrix& matrix, Pass pass, ProductTypes types)
      : accumulates(pass == Pass::kWeightGradient) {
    const int64_t rows = std::min(num_rows(), matrix.most_rows);
    const at::ScalarType in = types == ProductTypes::kFp32 ? at::kFloat : at::kBFloat16;
    const at::ScalarType out = types == ProductTypes::kBf16 ? at::kBFloat16 : at::kFloat;
    const at::Tensor x_MI = atl::model::waves(rows, matrix.inputs).to(in);
    const at::Tensor weight_OI = atl::model::waves(matrix.outputs, matrix.inputs).to(in);
    const at::Tensor dy_MO = atl::model::waves(rows, matrix.outputs).to(in);
    if (pass == Pass::kForward) {
      a_MK = x_MI;
      b_KN = weight_OI.t();
    } else if (pass == Pass::kInputGradient) {
      a_MK = dy_MO;
      b_KN = weight_OI;
    } else {
      a_MK = dy_MO.t();
      b_KN = x_MI;
    }
    out_MN = at::zeros({a_MK.size(0), b_KN.size(1)}, out);
  }
};

template <typename Multiply>
void run(benchmark::State& state, const Matrix& matrix, Pass pass, ProductTypes types,
         const Multiply& multiply) {
  const Product product(matrix, pass, types);
  multiply(product);  // What is made once is made.
  for (auto _ : state) multiply(product);
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * static_cast<double>(product.out_MN.numel() * product.a_MK.size(1)),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void add_candidates(const Matrix& matrix, Pass pass, ProductTypes types, const std::string& name) {
  const auto add = [&](const std::string& who, auto multiply) {
    benchmark::RegisterBenchmark((name + "/" + who).c_str(), [=](benchmark::State& state) {
      run(state, matrix, pass, types, multiply);
    })->UseRealTime();
  };
  for (const Library library : atl::model::libraries_for(types)) {
    add(std::string(atl::model::name_of(library)), [=](const Product& it) {
      atl::model::multiply_by(library, it.out_MN, it.a_MK, it.b_KN, it.accumulates);
    });
  }
  add("chosen",
      [](const Product& it) { atl::model::matmul(it.out_MN, it.a_MK, it.b_KN, it.accumulates); });
}

[[maybe_unused]] const bool kAdded = [] {
  for (const Matrix& matrix : kMatrices) {
    for (const Pass pass : {Pass::kForward, Pass::kInputGradient, Pass::kWeightGradient}) {
      const std::string name =
          std::string("/") + matrix.name + "/" + kPassNames[static_cast<size_t>(pass)];
      add_candidates(matrix, pass, ProductTypes::kFp32, "fp32" + name);
      const bool is_sum = pass == Pass::kWeightGradient;
      if (!is_sum) add_candidates(matrix, pass, ProductTypes::kBf16, "bf16" + name);
      add_candidates(matrix, pass, ProductTypes::kBf16ToFp32, "bf16_to_fp32" + name);
    }
  }
  return true;
}();

}  // namespace
