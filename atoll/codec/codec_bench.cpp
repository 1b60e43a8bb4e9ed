// Encoding and decoding speed, in bytes of floats per second. `of_memcpy` is the time that memcpy
// takes for the same floats over the time taken here: for `both`, an encoding and a decoding.
// 256 MiB go through in segments, as the exchange cuts them; the encoded bytes of all are kept.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"

namespace atl::codec {
namespace {

constexpr size_t kCount = size_t{1} << 26;  // 256 MiB of floats.
constexpr size_t kSegment = size_t{1} << 18;

/// Normal numbers, as outer gradients nearly are. A million random ones, repeated.
const std::vector<float>& some_values() {
  static const std::vector<float> values = [] {
    std::vector<float> made(kCount);
    const size_t period = (size_t{1} << 20) + 7;
    for (size_t i = 0; i < kCount; ++i) {
      made[i] = i < period ? 1e-3F * static_cast<float>(random_normal(1, 2, i)) : made[i - period];
    }
    return made;
  }();
  return values;
}

std::vector<float>& result() {
  static std::vector<float> values(kCount);
  return values;
}

void copy_once() {
  std::memcpy(result().data(), some_values().data(), kCount * sizeof(float));
  benchmark::DoNotOptimize(result().data());
}

/// The best of five.
double copy_seconds() {
  static const double seconds = [] {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      copy_once();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    return best;
  }();
  return seconds;
}

void report(benchmark::State& state) {
  const auto iterations = static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kCount * sizeof(float)));
  state.counters["of_memcpy"] =
      benchmark::Counter(iterations * copy_seconds(), benchmark::Counter::kIsRate);
}

class Segments {
 public:
  explicit Segments(const char* name) : codec_(make_codec(name)) {
    encoded_.reserve(kCount / kSegment * codec_->max_encoded_bytes(kSegment));
    copy_seconds();
    encode();
  }
  void encode() {
    encoded_.clear();
    ends_.clear();
    for (size_t begin = 0; begin < kCount; begin += kSegment) {
      codec_->encode(std::span(some_values()).subspan(begin, kSegment), encoded_);
      ends_.push_back(encoded_.size());
    }
    benchmark::DoNotOptimize(encoded_.data());
  }
  void decode() {
    size_t from = 0;
    for (size_t i = 0; i < ends_.size(); ++i) {
      const auto bytes = std::span(encoded_).subspan(from, ends_[i] - from);
      codec_->decode(bytes, std::span(result()).subspan(i * kSegment, kSegment));
      from = ends_[i];
    }
    benchmark::DoNotOptimize(result().data());
  }
  double bits_per_value() const { return 8.0 * static_cast<double>(encoded_.size()) / kCount; }

 private:
  std::unique_ptr<Codec> codec_;
  Bytes encoded_;
  std::vector<size_t> ends_;
};

void copy(benchmark::State& state) {
  copy_seconds();
  for (auto iteration : state) copy_once();
  report(state);
}

void encode(benchmark::State& state, const char* name) {
  Segments segments(name);
  for (auto iteration : state) segments.encode();
  report(state);
}

void decode(benchmark::State& state, const char* name) {
  Segments segments(name);
  for (auto iteration : state) segments.decode();
  report(state);
}

void both(benchmark::State& state, const char* name) {
  Segments segments(name);
  for (auto iteration : state) {
    segments.encode();
    segments.decode();
  }
  report(state);
  state.counters["bits_per_value"] = segments.bits_per_value();
}

BENCHMARK(copy);
#define ATOLL_BENCH_CODEC(label, name)    \
  BENCHMARK_CAPTURE(encode, label, name); \
  BENCHMARK_CAPTURE(decode, label, name); \
  BENCHMARK_CAPTURE(both, label, name)
ATOLL_BENCH_CODEC(fp32, "fp32");
ATOLL_BENCH_CODEC(bf16, "bf16");
ATOLL_BENCH_CODEC(fp16, "fp16");
ATOLL_BENCH_CODEC(e3m0, "e3m0");
ATOLL_BENCH_CODEC(int8, "int8");
ATOLL_BENCH_CODEC(int4, "int4");
ATOLL_BENCH_CODEC(sign3, "sign3");
ATOLL_BENCH_CODEC(topk, "topk(0.2)+sign3");
ATOLL_BENCH_CODEC(random, "random(0.1)+topk(0.2)+sign3");
ATOLL_BENCH_CODEC(cocktail, "cocktail");
ATOLL_BENCH_CODEC(sparse_loco, "sparse_loco");

}  // namespace
}  // namespace atl::codec
