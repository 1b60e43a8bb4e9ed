// Encoding speed of the tensor operations, in bytes of floats per second, on the CPU and, where
// there is a GPU, there: `whole` all values at once, `segments` as the exchange cuts them. The time
// is the caller's: encode() returns when the bytes are in the host's memory. `copy` only brings the
// floats there.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <vector>

#include "atoll/base/random.h"
#include "atoll/sync/device_codec.h"

namespace atl::sync {
namespace {

constexpr int64_t kSegment = int64_t{1} << 18;

int64_t count_for(at::Device device) { return int64_t{1} << (device.is_cpu() ? 22 : 27); }

/// Normal numbers, as outer gradients nearly are. A million random ones, repeated.
at::Tensor some_values_N(at::Device device) {
  constexpr int64_t kPeriod = int64_t{1} << 20;
  std::vector<float> values(kPeriod);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 1e-3F * static_cast<float>(random_normal(1, 2, i));
  }
  const at::Tensor some = at::from_blob(values.data(), {kPeriod}, at::kFloat);
  return some.to(device).repeat({count_for(device) / kPeriod});
}

void report(benchmark::State& state, at::Device device) {
  const int64_t bytes = count_for(device) * static_cast<int64_t>(sizeof(float));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

void copy(benchmark::State& state, at::Device device) {
  const at::Tensor values_N = some_values_N(device);
  const at::Tensor host_N = at::empty(values_N.sizes(), at::kFloat);
  host_N.copy_(values_N);
  for (auto iteration : state) host_N.copy_(values_N);
  report(state, device);
}

void encode_values(benchmark::State& state, const std::string& name, at::Device device,
                   int64_t segment) {
  const auto codec = codec::make_codec(name);
  const at::Tensor values_N = some_values_N(device);
  Bytes out;
  const auto encode_all = [&] {
    out.clear();  // Its memory stays.
    for (int64_t begin = 0; begin < values_N.numel(); begin += segment) {
      encode(*codec, values_N.slice(0, begin, begin + segment), out);
    }
    benchmark::DoNotOptimize(out.data());
  };
  encode_all();
  for (auto iteration : state) encode_all();
  report(state, device);
}

const bool kIsRegistered = [] {
  std::vector<at::Device> devices = {at::kCPU};
  if (at::hasCUDA()) devices.emplace_back(at::kCUDA, 0);
  for (const at::Device device : devices) {
    const std::string place = device.is_cpu() ? "cpu" : "cuda";
    const auto add = [&](const std::string& what, auto function, auto... arguments) {
      benchmark::RegisterBenchmark((place + "/" + what).c_str(), function, arguments...)
          ->UseRealTime();
    };
    add("copy", copy, device);
    for (const std::string name : {"fp32", "bf16", "fp16", "int8", "int4", "e3m0"}) {
      add(name + "/whole", encode_values, name, device, count_for(device));
      add(name + "/segments", encode_values, name, device, kSegment);
    }
  }
  return true;
}();

}  // namespace
}  // namespace atl::sync
