// matmul() against LibTorch's mm on the same matrices: those of a linear layer's output, and of
// the gradients of its input and its weight. Run with OMP_NUM_THREADS=1 for one core.
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "atoll/model/matmul.h"

namespace {

using Product = void (*)(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

void ours(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  atl::model::matmul(out, a, b);
}

void libtorchs(const at::Tensor& out_MN, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out = out_MN;
  at::mm_out(out, a, b);
}

/// Arguments: positions, inputs and outputs of the layer.
void linear_layer(benchmark::State& state, Product product) {
  const at::Tensor x_MI = at::randn({state.range(0), state.range(1)});
  const at::Tensor weight_OI = at::randn({state.range(2), state.range(1)});
  const at::Tensor y_MO = at::randn({state.range(0), state.range(2)});
  const at::Tensor dx_MI = x_MI.clone();
  const at::Tensor dweight_OI = weight_OI.clone();
  for (auto _ : state) {
    product(y_MO, x_MI, weight_OI.t());
    product(dx_MI, y_MO, weight_OI);
    product(dweight_OI, y_MO.t(), x_MI);
  }
  const auto operations = 6.0 * static_cast<double>(x_MI.numel() * state.range(2));
  state.counters["flop/s"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
}

void add_sizes(benchmark::internal::Benchmark* bench) {
  for (const auto& [positions, inputs, outputs] :
       {std::tuple{1024, 64, 128}, {4096, 64, 2000}, {2048, 256, 768}, {512, 512, 8192}}) {
    bench->Args({positions, inputs, outputs});
  }
}

}  // namespace

BENCHMARK_CAPTURE(linear_layer, atoll, ours)->Apply(add_sizes);
BENCHMARK_CAPTURE(linear_layer, libtorch, libtorchs)->Apply(add_sizes);
