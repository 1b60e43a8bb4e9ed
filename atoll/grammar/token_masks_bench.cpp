// Masks over 200,000 tokens along a text, a fresh cache for each grammar or a warm one. bench/
// structured_output.py measures the same over a trained vocabulary, beside other programs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "atoll/grammar/json_schema.h"
#include "atoll/grammar/matcher.h"

namespace atl::grammar {
namespace {

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "name": {"type": "string", "maxLength": 80},
  "age": {"type": "integer", "minimum": 0},
  "email": {"type": "string", "format": "email"},
  "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
  "place": {"type": "object",
            "properties": {"city": {"type": "string"}, "code": {"type": "number"}},
            "required": ["city"]}},
  "required": ["name", "age", "email", "tags"], "additionalProperties": false})";
constexpr std::string_view kText =
    R"({"name": "Ada Lovelace of London", "age": 36, "email": "ada@example.org", )"
    R"("tags": ["mathematics", "first programs", "notes"], )"
    R"("place": {"city": "London", "code": 12.5}})";

/// Bytes, words with and without a space, and pieces with punctuation, as vocabularies have them.
std::shared_ptr<const Vocabulary> vocabulary(size_t num_tokens) {
  std::mt19937_64 random(1);
  std::vector<std::string> tokens{""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string> marks{"\"", "\",", "\":", "{\"", "\"}",
                                       ", ", "()",  "=\"", "](",  "é"};
  while (tokens.size() < num_tokens) {
    std::string token = random() % 2 == 0 ? " " : "";
    for (size_t length = 2 + random() % 8; length > 0; --length) {
      token += static_cast<char>('a' + random() % 13 * (random() % 3 == 0 ? 2 : 1));
    }
    if (random() % 16 == 0) token += marks[random() % marks.size()];
    if (random() % 32 == 0) token = marks[random() % marks.size()] + token;
    tokens.push_back(std::move(token));
  }
  return std::make_shared<const Vocabulary>(tokens, std::vector<TokenId>{0});
}

/// The median and the worst time of a mask along the text, byte by byte.
void masks(benchmark::State& state) {
  static const auto all = vocabulary(200'000);
  using Clock = std::chrono::steady_clock;
  std::vector<double> micros;
  for (auto _ : state) {
    const auto grammar = schema_grammar(kSchema);
    const auto shared = std::make_shared<const TokenMasks>(grammar, all);
    for (int round = 0; round <= state.range(0); ++round) {
      Matcher matcher(shared);
      for (const char byte : kText) {
        const auto begin = Clock::now();
        benchmark::DoNotOptimize(matcher.mask());
        const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
        if (round == state.range(0)) micros.push_back(taken.count());
        if (!matcher.advance(static_cast<uint8_t>(byte) + 1)) state.SkipWithError("not taken");
      }
    }
  }
  std::ranges::sort(micros);
  state.counters["median_us"] = micros[micros.size() / 2];
  state.counters["p99_us"] = micros[micros.size() * 99 / 100];
  state.counters["worst_us"] = micros.back();
}
BENCHMARK(masks)->ArgName("warm")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void compile(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(schema_grammar(kSchema));
}
BENCHMARK(compile)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace atl::grammar
