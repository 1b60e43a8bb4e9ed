// Encoding and decoding speed, in bytes of floats per second; memcpy beside them is the roof.
#include <benchmark/benchmark.h>

#include <cstring>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"

namespace atl::codec {
namespace {

constexpr size_t kCount = size_t{1} << 22;  // 16 MiB of floats.

std::vector<float> some_values() {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(random_uniform(1, 2, i));
  return values;
}

void set_speed(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kCount * sizeof(float)));
}

void encode(benchmark::State& state, const char* name) {
  const auto codec = make_codec(name);
  const std::vector<float> values = some_values();
  Bytes out;
  out.reserve(codec->max_encoded_bytes(kCount));
  for (auto iteration : state) {
    out.clear();
    codec->encode(values, out);
    benchmark::DoNotOptimize(out.data());
  }
  set_speed(state);
}

void decode(benchmark::State& state, const char* name) {
  const auto codec = make_codec(name);
  std::vector<float> values = some_values();
  Bytes bytes;
  codec->encode(values, bytes);
  for (auto iteration : state) {
    codec->decode(bytes, values);
    benchmark::DoNotOptimize(values.data());
  }
  set_speed(state);
}

void copy(benchmark::State& state) {
  const std::vector<float> values = some_values();
  std::vector<float> out(kCount);
  for (auto iteration : state) {
    std::memcpy(out.data(), values.data(), kCount * sizeof(float));
    benchmark::DoNotOptimize(out.data());
  }
  set_speed(state);
}

BENCHMARK(copy);
BENCHMARK_CAPTURE(encode, fp32, "fp32");
BENCHMARK_CAPTURE(decode, fp32, "fp32");
BENCHMARK_CAPTURE(encode, bf16, "bf16");
BENCHMARK_CAPTURE(decode, bf16, "bf16");

}  // namespace
}  // namespace atl::codec
