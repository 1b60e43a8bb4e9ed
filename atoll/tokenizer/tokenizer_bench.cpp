// Encoding speed on one thread, a fresh Encoder per iteration: what `atoll data pack` does per
// corpus. bench/tokenizer_speed.py names the text and the tokenizer and runs Hugging Face's beside
// it.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "atoll/base/file.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::tokenizer {
namespace {

std::string text_to_encode() {
  if (const char* file = std::getenv("ATOLL_BENCH_TEXT")) return read_file(file);
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "def function_" + std::to_string(i % 97) + "(self):\n    return self.values[" +
            std::to_string(i) + "]\n\n";
  }
  return text;
}

Tokenizer tokenizer_for(const std::string& text) {
  if (const char* file = std::getenv("ATOLL_BENCH_TOKENIZER")) return Tokenizer::load(file);
  WordCounts words;
  words.add(text);
  return Tokenizer::from_json(
      train_tokenizer(words, {.vocab_size = 512, .min_frequency = 2}, [](int64_t) {}), "bench");
}

void encode(benchmark::State& state) {
  const std::string text = text_to_encode();
  const Tokenizer tokenizer = tokenizer_for(text);
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    Encoder encoder(tokenizer);
    encoder.encode(text, SpecialText::kToken, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * std::ssize(text));
  state.counters["ids"] = static_cast<double>(ids.size());
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace atl::tokenizer
