#include "atoll/serve/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/decoding/draw.h"

namespace atl::serve {
namespace {

/// A row and what its next token follows from.
struct Active {
  size_t index;
  Row* row;
  Generation* generation;
  int64_t max_tokens;
  decoding::Draw draw;
};

int64_t checked_room(const Row& row, int64_t context) {
  const int64_t length = std::ssize(row.tokens);
  ATOLL_CHECK(row.cache->length() < std::max<int64_t>(length, 1));
  if (length == 0) throw InputError("the prompt has no tokens");
  if (length < context) return context - length;
  throw InputError(
      fmt::format("the prompt has {} tokens and the model's context {}: shorten it to at most {}",
                  length, context, context - 1));
}

/// Reads what the caches lack and returns the logits of each row's next token, on the host.
at::Tensor next_logits_RV(const model::Model& model, std::span<const Active> active) {
  std::vector<int64_t> tokens;
  std::vector<int64_t> last;  // The place of each row's last token.
  std::vector<model::CachedRow> rows;
  for (const Active& each : active) {
    model.forget_other_keys(*each.row->cache, std::ssize(each.row->tokens));
    const auto unread = std::span(each.row->tokens).subspan(each.row->cache->length());
    tokens.insert(tokens.end(), unread.begin(), unread.end());
    last.push_back(std::ssize(tokens) - 1);
    rows.push_back({each.row->cache, std::ssize(unread)});
  }
  const auto options = at::TensorOptions().dtype(at::kLong);
  const at::Tensor tokens_1T = at::empty({1, std::ssize(tokens)}, options);
  std::ranges::copy(tokens, tokens_1T.mutable_data_ptr<int64_t>());
  const at::Tensor hidden_1TC = model.hidden_1TC(tokens_1T.to(model.device()), rows);
  const at::Tensor last_R = at::empty({std::ssize(last)}, options);
  std::ranges::copy(last, last_R.mutable_data_ptr<int64_t>());
  const at::Tensor hidden_RC = hidden_1TC[0].index_select(0, last_R.to(model.device()));
  return model.logits(hidden_RC).to(at::kCPU).contiguous();
}

/// Whether the row goes on.
bool take_token(const OnToken& on_token, std::span<float> logits_V, Active& active) {
  const decoding::Order order = active.draw.order(std::ssize(active.row->tokens));
  const int64_t id = decoding::follow(order, logits_V).score.id;
  Generation& generation = *active.generation;
  if (active.draw.is_end(id)) {
    generation.reason = FinishReason::kStop;
    return false;
  }
  active.row->tokens.push_back(id);
  active.draw.add(id);
  generation.ids.push_back(id);
  if (on_token && !on_token(active.index, id)) {
    generation.reason = FinishReason::kStop;
    return false;
  }
  return std::ssize(generation.ids) < active.max_tokens;
}

}  // namespace

std::vector<Generation> generate(const model::Model& model, std::span<Row> rows,
                                 const GenerateOptions& options, const OnToken& on_token) {
  decoding::check(options.sampler);
  const at::NoGradGuard no_grad;
  std::vector<Generation> generations(rows.size());
  std::vector<Active> active;
  for (size_t index = 0; index < rows.size(); ++index) {
    Row& row = rows[index];
    const int64_t room = checked_room(row, model.config().context());
    const int64_t max_tokens = std::min(options.max_tokens, room);
    if (max_tokens <= 0) continue;
    decoding::GenerationRequest request{
        .prompt = row.tokens, .ends = options.ends, .sampler = options.sampler};
    request.sampler.seed += index;
    active.push_back({index, &row, &generations[index], max_tokens,
                      decoding::Draw(request, model.config().vocab_size)});
  }
  while (!active.empty()) {
    const at::Tensor logits_RV = next_logits_RV(model, active);
    const auto size = static_cast<size_t>(logits_RV.size(1));
    float* logits_V = logits_RV.mutable_data_ptr<float>();
    std::vector<Active> going;
    for (Active& each : active) {
      if (take_token(on_token, {logits_V, size}, each)) going.push_back(std::move(each));
      logits_V += size;
    }
    active = std::move(going);
  }
  return generations;
}

std::vector<Generation> generate(const model::Model& model,
                                 std::span<const std::vector<int64_t>> prompts,
                                 const GenerateOptions& options, const OnToken& on_token) {
  std::vector<model::KvCache> caches;
  caches.reserve(prompts.size());
  std::vector<Row> rows;
  for (const std::vector<int64_t>& prompt : prompts) {
    caches.push_back(model.kv_cache());
    rows.push_back({prompt, &caches.back()});
  }
  return generate(model, rows, options, on_token);
}

}  // namespace atl::serve
