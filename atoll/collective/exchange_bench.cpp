#include <benchmark/benchmark.h>

#include <deque>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"
#include "atoll/collective/part_frame.h"

namespace atl::collective {
namespace {

std::vector<float> random_values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random_uniform(1, 2, i));
  return values;
}

void BM_AddScaled(benchmark::State& state) {
  const auto values = random_values(static_cast<size_t>(state.range(0)));
  std::vector<float> mean(values.size());
  for (auto _ : state) {
    add_scaled(mean, values, 0.5F);
    benchmark::DoNotOptimize(mean.data());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(BM_AddScaled)->Arg(1 << 22);

void BM_SumOfSquares(benchmark::State& state) {
  const auto values = random_values(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares(values));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(BM_SumOfSquares)->Arg(1 << 18);

/// All the work of one round for two members on one thread, the frames' bytes included, without a
/// network. Bytes: the encoded parts that travel.
void round_of_two(benchmark::State& state, const std::string& name, Topology topology) {
  const auto count = static_cast<size_t>(state.range(0));
  const auto codec = codec::make_codec(name);
  const auto values = random_values(count);
  const Contribution contribution{.values = values, .codec = codec.get(), .topology = topology};
  int64_t bytes = 0;
  for (auto _ : state) {
    std::vector<std::unique_ptr<Exchange>> members;
    for (int32_t rank = 0; rank < 2; ++rank) {
      members.push_back(std::make_unique<Exchange>(
          Exchange::Plan{.header = {.round = 1, .attempt = 0},
                         .rank = rank,
                         .numbers = {0, 1},
                         .members = {"a", "b"},
                         .weights = {1, 1},
                         .shares = equal_shares(count, topology, 2),
                         .segment_values = segment_size(count, topology)},
          contribution));
    }
    for (int32_t pass = 0; pass < 6; ++pass) {
      Exchange& member = *members[static_cast<size_t>(pass % 2)];
      while (member.work().value()) {
      }
      for (const Outgoing& outgoing : member.take_outgoing()) {
        for (size_t at = 0; at < outgoing.blob->size(); at += kChunkBytes) {
          const size_t size = std::min(kChunkBytes, outgoing.blob->size() - at);
          swarm::Part part = outgoing.part;
          part.offset = at;
          const Bytes frame = part_frame(part, outgoing.blob, part.offset, size).joined();
          bytes += static_cast<int64_t>(frame.size());
          const auto view = view_part(frame, part_head_bytes(part.header));
          if (!members[static_cast<size_t>(outgoing.to)]->receive(view->part, view->data)) {
            state.SkipWithError("receive");
          }
        }
      }
    }
    if (!members[0]->complete() || !members[1]->complete()) state.SkipWithError("incomplete");
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK_CAPTURE(round_of_two, fp32_scatter, "fp32", Topology::kScatter)
    ->Arg(4'000'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_of_two, fp32_gather, "fp32", Topology::kGather)
    ->Arg(4'000'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_of_two, bf16_scatter, "bf16", Topology::kScatter)
    ->Arg(4'000'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_of_two, bf16_gather, "bf16", Topology::kGather)
    ->Arg(4'000'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace atl::collective
