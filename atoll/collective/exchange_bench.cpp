#include <benchmark/benchmark.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/exchange.h"
#include "atoll/collective/measures.h"
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

/// All the work of one round of so many members on one thread, the frames' bytes included, without
/// a network. Bytes: the encoded parts that travel.
/// `memory`: that of the rounds before, as in a run; null: all is fresh.
void whole_round(benchmark::State& state, int32_t num_members, const std::string& name,
                 Topology topology, const std::shared_ptr<RoundMemory>& memory = nullptr) {
  const auto count = static_cast<size_t>(state.range(0));
  const auto codec = codec::make_codec(name);
  const auto values = random_values(count);
  const Contribution contribution{.values = values, .codec = codec.get(), .topology = topology};
  int64_t bytes = 0;
  Exchange::Plan plan{.header = {.round = 1, .attempt = 0},
                      .weights = std::vector<int64_t>(static_cast<size_t>(num_members), 1),
                      .shares = equal_shares(count, topology, num_members),
                      .segment_values = segment_size(count, topology)};
  for (int32_t rank = 0; rank < num_members; ++rank) {
    plan.numbers.push_back(rank);
    plan.members.push_back(std::string(1, static_cast<char>('a' + rank)));
  }
  for (auto _ : state) {
    std::vector<std::unique_ptr<Exchange>> members;
    for (plan.rank = 0; plan.rank < num_members; ++plan.rank) {
      members.push_back(std::make_unique<Exchange>(plan, contribution, memory));
    }
    for (int32_t pass = 0; pass < 3 * num_members; ++pass) {
      Exchange& member = *members[static_cast<size_t>(pass % num_members)];
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
    const auto is_complete = [](const auto& member) { return member->complete(); };
    if (!std::ranges::all_of(members, is_complete)) state.SkipWithError("incomplete");
  }
  state.SetBytesProcessed(bytes);
}
void round_of_two(benchmark::State& state, const std::string& name, Topology topology) {
  whole_round(state, 2, name, topology);
}
/// Contributions are compared, too.
void round_of_five(benchmark::State& state, const std::string& name, Topology topology) {
  whole_round(state, 5, name, topology, std::make_shared<RoundMemory>(PagePool(size_t{1} << 30)));
}
void round_of_sixteen(benchmark::State& state, const std::string& name, Topology topology) {
  whole_round(state, 16, name, topology, std::make_shared<RoundMemory>(PagePool(size_t{1} << 30)));
}

#define ATOLL_BENCH_ROUND(round, codec, name, topology)                \
  BENCHMARK_CAPTURE(round, codec##_##name, #codec, Topology::topology) \
      ->Arg(4'000'000)                                                 \
      ->Unit(benchmark::kMillisecond)

ATOLL_BENCH_ROUND(round_of_two, fp32, scatter, kScatter);
ATOLL_BENCH_ROUND(round_of_two, fp32, gather, kGather);
ATOLL_BENCH_ROUND(round_of_two, bf16, scatter, kScatter);
ATOLL_BENCH_ROUND(round_of_two, bf16, gather, kGather);
ATOLL_BENCH_ROUND(round_of_five, fp32, scatter, kScatter);
ATOLL_BENCH_ROUND(round_of_five, bf16, scatter, kScatter);
ATOLL_BENCH_ROUND(round_of_five, bf16, gather, kGather);
ATOLL_BENCH_ROUND(round_of_five, e3m0, scatter, kScatter);
ATOLL_BENCH_ROUND(round_of_sixteen, bf16, scatter, kScatter);

}  // namespace
}  // namespace atl::collective
