#include "atoll/serve/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

constexpr int64_t kRowsAtOnce = 32;

/// Of one row. Everything that it refers to outlives the engine's work.
class RowListener final : public decoding::Listener {
 public:
  RowListener(size_t row, const Hearing& hearing, Generation& generation, std::string& fault)
      : row_(row), hearing_(hearing), generation_(generation), fault_(fault) {}

  void prompt_read(Cached cached, std::vector<decoding::TokenScore> /*scores*/) override {
    generation_.num_cached = cached.num_tokens;
  }
  bool token(const decoding::TokenScore& score) override {
    generation_.ids.push_back(score.id);
    return !hearing_.token || hearing_.token(row_, score.id);
  }
  void finished(FinishReason reason) override {
    generation_.reason = reason;
    if (hearing_.ended) hearing_.ended(row_);
  }
  void failed(const decoding::Refusal& refusal) override { fault_ = refusal.message; }

 private:
  const size_t row_;
  const Hearing& hearing_;
  Generation& generation_;
  std::string& fault_;
};

void check_prompt(std::span<const int64_t> prompt, int64_t context) {
  if (prompt.empty()) throw InputError("the prompt has no tokens");
  if (std::ssize(prompt) < context) return;
  throw InputError(
      fmt::format("the prompt has {} tokens and the model's context {}: shorten it to at most {}",
                  prompt.size(), context, context - 1));
}

}  // namespace

EngineOptions engine_options(const model::Model& model, std::span<const int64_t> lengths,
                             int64_t max_guesses) {
  std::vector<int64_t> pages;
  for (const int64_t length : lengths) {
    pages.push_back(std::min(length, model.config().context()) / model::KvPool::kPagePositions + 1);
  }
  std::ranges::sort(pages, std::greater<>());
  pages.resize(std::min<size_t>(pages.size(), kRowsAtOnce));
  int64_t num_pages = 1;  // Beside theirs that of a text that another one begins as.
  for (const int64_t count : pages) num_pages += count;
  const int64_t page_bytes = model.kv_pool(model.decoder().layers())->page_bytes();
  return {
      .kv_bytes = num_pages * page_bytes, .max_running = kRowsAtOnce, .max_guesses = max_guesses};
}

std::vector<Generation> generate(Engine& engine, std::span<const std::vector<int64_t>> prompts,
                                 const GenerateOptions& options, const Hearing& hearing) {
  decoding::check(options.sampler);
  std::vector<Generation> generations(prompts.size());
  std::string fault;
  std::vector<std::unique_ptr<Sequence>> answers;
  for (size_t row = 0; row < prompts.size(); ++row) {
    check_prompt(prompts[row], engine.context());
    decoding::GenerationRequest request{.prompt = prompts[row],
                                        .max_tokens = options.max_tokens,
                                        .ends = options.ends,
                                        .sampler = options.sampler};
    request.sampler.seed += row;
    answers.push_back(std::make_unique<Answer>(
        row, std::move(request), engine.vocab_size(), engine.context(),
        std::make_shared<RowListener>(row, hearing, generations[row], fault)));
  }
  std::set<Sequence::Id> ids;
  for (auto& answer : answers) {
    ids.insert(answer->id());
    engine.add(std::move(answer));
  }
  while (!engine.is_idle() && fault.empty()) {
    engine.read();
    engine.give();
  }
  engine.drop(ids);
  if (!fault.empty()) throw InputError(fault);
  return generations;
}

std::vector<Generation> generate(const model::Model& model,
                                 std::span<const std::vector<int64_t>> prompts,
                                 const GenerateOptions& options, const Hearing& hearing) {
  const int64_t context = model.config().context();
  std::vector<int64_t> lengths;
  for (const std::vector<int64_t>& prompt : prompts) {
    const int64_t length = std::ssize(prompt);
    lengths.push_back(length + std::clamp<int64_t>(options.max_tokens, 0, context));
  }
  Engine engine(model, engine_options(model, lengths, options.max_guesses));
  return generate(engine, prompts, options, hearing);
}

}  // namespace atl::serve
