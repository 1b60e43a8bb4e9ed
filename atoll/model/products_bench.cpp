// Products with stored weights beside LibTorch's with the same weights in FP32: a long text, and
// one token. Run with OMP_NUM_THREADS=1 for one core.
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "atoll/model/matmul.h"
#include "atoll/model/products.h"

namespace {

using atl::codec::GgmlType;

/// Arguments: rows, inputs, outputs.
void atoll(benchmark::State& state, GgmlType type) {
  const int64_t rows = state.range(0);
  const int64_t inputs = state.range(1);
  const int64_t outputs = state.range(2);
  const auto block = atl::codec::ggml_block(type);
  const std::vector<std::byte> bytes(static_cast<size_t>(inputs * outputs) / block.num_values *
                                     block.num_bytes);
  const atl::model::StoredMatrix matrix(
      {{.type = type, .bytes = bytes, .num_rows = outputs, .width = inputs}});
  const at::Tensor x = at::randn({rows, inputs});
  const at::Tensor y = at::empty({rows, outputs});
  for (auto _ : state) {
    matrix.multiply(rows, x.const_data_ptr<float>(), y.mutable_data_ptr<float>());
  }
  state.counters["flop/s"] = benchmark::Counter(2.0 * static_cast<double>(rows * inputs * outputs),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void libtorch(benchmark::State& state) {
  const at::Tensor x = at::randn({state.range(0), state.range(1)});
  const at::Tensor weight = at::randn({state.range(2), state.range(1)});
  const at::Tensor y = at::empty({state.range(0), state.range(2)});
  for (auto _ : state) atl::model::matmul(y, x, weight.t());
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * static_cast<double>(y.numel() * weight.size(1)),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void add_large_sizes(benchmark::internal::Benchmark* bench) {
  for (const auto& [rows, inputs, outputs] : {std::tuple{1, 2048, 8192},
                                              {8, 2048, 8192},
                                              {16, 2048, 8192},
                                              {256, 2048, 8192},
                                              {1024, 2048, 8192}}) {
    bench->Args({rows, inputs, outputs});
  }
}

void add_sizes(benchmark::internal::Benchmark* bench) {
  add_large_sizes(bench);
  for (const auto& [rows, inputs, outputs] :
       {std::tuple{1, 576, 49152}, {128, 576, 1536}, {2048, 576, 1536}, {2048, 1536, 576}}) {
    bench->Args({rows, inputs, outputs});
  }
}

/// Those of a pass of SmolLM2-135M that add_sizes has not: four in each layer, and the head.
void add_smollm2_sizes(benchmark::internal::Benchmark* bench) {
  for (const int rows : {1, 16, 1024}) {
    for (const auto& [inputs, outputs] :
         {std::pair{576, 960}, {576, 576}, {576, 3072}, {1536, 576}}) {
      bench->Args({rows, inputs, outputs});
    }
  }
  bench->Args({16, 576, 49152});
}

}  // namespace

BENCHMARK(libtorch)->Apply(add_sizes)->Apply(add_smollm2_sizes);
BENCHMARK_CAPTURE(atoll, f32, GgmlType::kF32)->Apply(add_sizes)->Apply(add_smollm2_sizes);
BENCHMARK_CAPTURE(atoll, bf16, GgmlType::kBF16)->Apply(add_sizes)->Apply(add_smollm2_sizes);
BENCHMARK_CAPTURE(atoll, f16, GgmlType::kF16)->Apply(add_sizes);
BENCHMARK_CAPTURE(atoll, q8_0, GgmlType::kQ8_0)->Apply(add_sizes);
BENCHMARK_CAPTURE(atoll, q4_0, GgmlType::kQ4_0)->Apply(add_sizes);
BENCHMARK_CAPTURE(atoll, q4_1, GgmlType::kQ4_1)->Apply(add_sizes);
BENCHMARK_CAPTURE(atoll, q4_k, GgmlType::kQ4_K)->Apply(add_large_sizes);
BENCHMARK_CAPTURE(atoll, q5_k, GgmlType::kQ5_K)->Apply(add_large_sizes);
BENCHMARK_CAPTURE(atoll, q6_k, GgmlType::kQ6_K)->Apply(add_large_sizes);
