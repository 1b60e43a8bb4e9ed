#pragma once
// What tests of generators share: a small model, texts for it, and a listener that can be waited
// for.
#include <ATen/Parallel.h>

#include <cstdint>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/base/random.h"
#include "atoll/decoding/generator.h"
#include "atoll/model/model.h"

namespace atl::serve {

using decoding::FinishReason;
using decoding::Refusal;
using decoding::TokenScore;

constexpr int64_t kContext = 200;

inline model::Model make_small_model(uint64_t seed) {
  at::set_num_threads(1);  // So small that threads only wait for each other.
  model::Model made({.architecture = "llama",
                     .vocab_size = 61,
                     .hidden_size = 24,
                     .intermediate_size = 40,
                     .num_layers = 3,
                     .num_heads = 4,
                     .num_kv_heads = 2,
                     .max_positions = kContext},
                    at::kCPU, model::Purpose::kInference);
  made.initialise(seed);
  made.parameters().values_P().mul_(8);  // Logits that differ clearly.
  return made;
}

inline const model::Model& small_model() {
  static const model::Model model = make_small_model(5);
  return model;
}

inline std::vector<int64_t> text(uint64_t seed, int64_t length) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<int64_t>(random_uniform(seed, 7, static_cast<uint64_t>(i)) * 61));
  }
  return ids;
}

/// What became of a request.
class Heard final : public decoding::Listener {
 public:
  void prompt_read(Cached cached, std::vector<TokenScore> scores) override {
    num_cached_ = cached.num_tokens;
    prompt_scores_ = std::move(scores);
  }
  bool token(const TokenScore& score) override {
    scores_.push_back(score);
    return !stops_after_ || std::ssize(scores_) < *stops_after_;
  }
  void finished(FinishReason reason) override { end_.set_value(reason); }
  void failed(const Refusal& refusal) override {
    refusal_ = refusal;
    end_.set_value(std::nullopt);
  }

  std::optional<FinishReason> wait() {
    if (!ended_) reason_ = end_.get_future().get();
    ended_ = true;
    return reason_;
  }
  std::vector<int64_t> ids() {
    wait();
    std::vector<int64_t> ids;
    for (const TokenScore& score : scores_) ids.push_back(score.id);
    return ids;
  }
  const std::vector<TokenScore>& scores() const { return scores_; }
  const std::vector<TokenScore>& prompt_scores() const { return prompt_scores_; }
  int64_t num_cached() const { return num_cached_; }
  const Refusal& refusal() const { return refusal_; }
  void stop_after(int64_t count) { stops_after_ = count; }

 private:
  std::promise<std::optional<FinishReason>> end_;
  std::optional<FinishReason> reason_;
  bool ended_ = false;
  std::vector<TokenScore> scores_, prompt_scores_;
  int64_t num_cached_ = 0;
  Refusal refusal_;
  std::optional<int64_t> stops_after_;
};

}  // namespace atl::serve
