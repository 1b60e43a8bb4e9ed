#include "atoll/decoding/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::decoding {

Draw::Draw(const GenerationRequest& request, int64_t vocab_size)
    : sampler_(request.sampler),
      ends_(request.ends),
      bias_(request.logit_bias),
      num_top_(request.top_logprobs),
      seen_(vocab_size) {
  check(sampler_);
  const auto require = [&](int64_t id, const char* what) {
    if (id >= 0 && id < vocab_size) return;
    throw InputError(
        fmt::format("{} has the id {}, and the model's ids are below {}", what, id, vocab_size));
  };
  for (const int64_t id : request.prompt) {
    require(id, "the prompt");
    seen_.add(id);
  }
  for (const auto& [id, bias] : bias_) require(id, "logit_bias");
  if (request.grammar == nullptr) return;
  if (static_cast<int64_t>(request.grammar->vocabulary().size()) != vocab_size) {
    throw InputError(fmt::format("the grammar is for {} ids, and the model has {}",
                                 request.grammar->vocabulary().size(), vocab_size));
  }
  matcher_.emplace(request.grammar);
}

bool Draw::is_end(int64_t id) const { return std::ranges::find(ends_, id) != ends_.end(); }

bool Draw::add_guess(int64_t id) {
  if (is_end(id)) return false;
  if (matcher_ && !matcher_->advance(static_cast<grammar::TokenId>(id))) return false;
  seen_.add_made(id);
  return true;
}

void Draw::add(int64_t id) {
  const bool is_taken = add_guess(id);
  ATOLL_CHECK(is_taken, "a token that the grammar does not allow");
}

bool Draw::is_over() const {
  return matcher_ && matcher_->may_end() && matcher_->place().tops.empty();
}

Order Draw::order(int64_t position) const {
  Order order{.wanted = Wanted::kToken,
              .is_scored = num_top_.has_value(),
              .num_top = num_top_.value_or(0),
              .position = position,
              .sampler = sampler_,
              .bias = {bias_.begin(), bias_.end()},
              .seen = seen_.penalised(sampler_),
              .allowed = {}};
  if (!matcher_) return order;
  grammar::TokenMask allowed = matcher_->mask();
  if (allowed.count() == 0) {
    throw InputError("no token of the model's vocabulary goes on as the answer's grammar demands");
  }
  order.allowed = std::move(allowed.words());
  return order;
}

}  // namespace atl::decoding
