// Encoding and decoding speed, in bytes of floats per second. `of_memcpy` is the time that memcpy
// takes for the same floats, measured before each turn of the codec, over the time taken here: for
// `both`, an encoding and a decoding. 256 MiB go through in segments, as the exchange cuts them;
// the encoded bytes of all are kept.
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

template <typename Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void copy_values() {
  std::memcpy(result().data(), some_values().data(), kCount * sizeof(float));
  benchmark::DoNotOptimize(result().data());
}

/// Times `turn`, and before each memcpy.
template <typename Turn>
void measure(benchmark::State& state, const Turn& turn) {
  double copying = 0;
  double turning = 0;
  for (auto iteration : state) {
    copying += seconds_of(copy_values);
    const double seconds = seconds_of(turn);
    state.SetIterationTime(seconds);
    turning += seconds;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kCount * sizeof(float)));
  state.counters["of_memcpy"] = copying / turning;
}

class Segments {
 public:
  explicit Segments(const char* name) : codec_(make_codec(name)) {
    encoded_.reserve(kCount / kSegment * codec_->max_encoded_bytes(kSegment));
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

void copy(benchmark::State& state) { measure(state, copy_values); }

void encode(benchmark::State& state, const char* name) {
  Segments segments(name);
  measure(state, [&] { segments.encode(); });
}

void decode(benchmark::State& state, const char* name) {
  Segments segments(name);
  measure(state, [&] { segments.decode(); });
}

void both(benchmark::State& state, const char* name) {
  Segments segments(name);
  measure(state, [&] {
    segments.encode();
    segments.decode();
  });
  state.counters["bits_per_value"] = segments.bits_per_value();
}

BENCHMARK(copy)->UseManualTime();
#define ATOLL_BENCH_CODEC(label, name)                     \
  BENCHMARK_CAPTURE(encode, label, name)->UseManualTime(); \
  BENCHMARK_CAPTURE(decode, label, name)->UseManualTime(); \
  BENCHMARK_CAPTURE(both, label, name)->UseManualTime()
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
