// Tokens per second of an engine: answers alone and together, and prompts. ATOLL_BENCH_MODEL names
// a model folder; without it a small random model is used, so that the bench runs anywhere.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "atoll/model/spinning.h"
#include "atoll/serve/engine.h"

namespace atl::serve {
namespace {

const model::Model& bench_model() {
  static const model::Spinning spinning;
  static const model::Model model = [] {
    if (const char* folder = std::getenv("ATOLL_BENCH_MODEL")) {
      return model::load_model(folder, at::kCPU);
    }
    model::Model made({.architecture = "llama",
                       .vocab_size = 512,
                       .hidden_size = 64,
                       .intermediate_size = 128,
                       .num_layers = 2,
                       .num_heads = 4,
                       .num_kv_heads = 2,
                       .max_positions = 4096},
                      at::kCPU, model::Purpose::kInference);
    made.initialise(1);
    return made;
  }();
  return model;
}

class Unheard final : public decoding::Listener {
 public:
  void prompt_read(Cached /*cached*/, std::vector<decoding::TokenScore> /*scores*/) override {}
  bool token(const decoding::TokenScore& /*score*/) override { return true; }
  void finished(decoding::FinishReason /*reason*/) override {}
  void failed(const decoding::Refusal& /*refusal*/) override {}
};

/// `period`: after so many tokens the prompt begins anew.
std::unique_ptr<Sequence> answer(const Engine& engine, Sequence::Id id, int64_t prompt_tokens,
                                 int64_t period = 500) {
  decoding::GenerationRequest request{.max_tokens = 1 << 20, .sampler = {.temperature = 0}};
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back((i % period * 31 + static_cast<int64_t>(id) * 7) % 500);
  }
  return std::make_unique<Answer>(id, std::move(request), bench_model().config().vocab_size,
                                  engine.context(), std::make_shared<Unheard>());
}

/// So many answers, each behind so long a prompt; a pass makes a token of each.
void Decode(benchmark::State& state) {
  Engine engine(bench_model(), {.max_guesses = 0});
  for (Sequence::Id id = 1; id <= static_cast<Sequence::Id>(state.range(0)); ++id) {
    engine.add(answer(engine, id, state.range(1)));
  }
  const auto pass = [&] {
    engine.read();
    engine.give();
  };
  while (engine.status().made_tokens < 2 * state.range(0)) pass();
  for (auto _ : state) pass();
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
BENCHMARK(Decode)
    ->Args({1, 64})
    ->Args({16, 64})
    ->Args({1, 512})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// One answer to a prompt that repeats itself, with so many guesses at most.
void DecodeGuessed(benchmark::State& state) {
  Engine engine(bench_model(), {.max_guesses = state.range(0)});
  engine.add(answer(engine, 1, 256, 32));
  const auto made = [&] { return engine.status().made_tokens; };
  const auto pass = [&] {
    engine.read();
    engine.give();
  };
  while (made() < 16) pass();
  const int64_t before = made();
  for (auto _ : state) pass();
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(made() - before), benchmark::Counter::kIsRate);
}
BENCHMARK(DecodeGuessed)->Arg(0)->Arg(16)->Unit(benchmark::kMillisecond)->UseRealTime();

void Prefill(benchmark::State& state) {
  Engine engine(bench_model(), {.prompt_tokens = state.range(1)});
  Sequence::Id id = 0;
  for (auto _ : state) {
    engine.add(answer(engine, ++id, state.range(0)));
    while (engine.status().made_tokens < static_cast<int64_t>(id)) {
      engine.read();
      engine.give();
    }
    engine.drop({id});
  }
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
BENCHMARK(Prefill)
    ->Args({512, 256})
    ->Args({512, 2048})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace atl::serve
