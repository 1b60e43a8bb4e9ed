#include "atoll/serve/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

/// Reads `ids` and returns the logits of the token behind them, on the host.
at::Tensor next_logits_V(const model::Model& model, std::span<const int64_t> ids,
                         model::KvCache& cache) {
  const auto count = static_cast<int64_t>(ids.size());
  const at::Tensor tokens_BT = at::empty({1, count}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(ids, tokens_BT.mutable_data_ptr<int64_t>());
  const at::Tensor hidden_BTC = model.hidden_BTC(tokens_BT.to(model.device()), cache);
  return model.logits(hidden_BTC[0].narrow(0, count - 1, 1))[0].to(at::kCPU).contiguous();
}

}  // namespace

std::string name_of(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

Generation generate(const model::Model& model, std::span<const int64_t> prompt,
                    const GenerateOptions& options, const std::function<void(int64_t)>& on_token) {
  check(options.sampler);
  const auto length = static_cast<int64_t>(prompt.size());
  const int64_t context = model.config().context();
  if (prompt.empty()) throw InputError("the prompt has no tokens");
  if (length >= context) {
    throw InputError(
        fmt::format("the prompt has {} tokens and the model's context {}: shorten it "
                    "to at most {}",
                    length, context, context - 1));
  }
  const at::NoGradGuard no_grad;
  const int64_t max_tokens = std::min(options.max_tokens, context - length);
  model::KvCache cache(model.config(), 1, length + max_tokens, model.device());
  Generation generation;
  std::span<const int64_t> unread = prompt;
  while (std::ssize(generation.ids) < max_tokens) {
    const at::Tensor logits_V = next_logits_V(model, unread, cache);
    const int64_t id =
        sample({logits_V.const_data_ptr<float>(), static_cast<size_t>(logits_V.numel())},
               options.sampler, length + std::ssize(generation.ids));
    if (id == options.end_of_text) {
      generation.reason = FinishReason::kStop;
      break;
    }
    generation.ids.push_back(id);
    unread = std::span(generation.ids).last(1);
    if (on_token) on_token(id);
  }
  return generation;
}

}  // namespace atl::serve
