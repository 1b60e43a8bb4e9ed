// A decoder run block by block, each as if on another machine, against the whole: the same bits of
// hidden states and gradients for every family and split.
#include "atoll/model/decoder.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "atoll/model/model.h"

namespace atl::model {
namespace {

constexpr int64_t kVocabulary = 61;
constexpr int64_t kLayers = 4;

/// Every family, with biases and windows where it has them; and its other ways.
std::vector<weights::ModelConfig> varieties() {
  std::vector<weights::ModelConfig> all;
  for (const weights::Family& family : weights::families()) {
    all.push_back({.architecture = std::string(family.name),
                   .vocab_size = kVocabulary,
                   .hidden_size = 24,
                   .intermediate_size = 40,
                   .num_layers = kLayers,
                   .num_heads = 4,
                   .num_kv_heads = family.has("num_kv_heads") ? 2 : 4,
                   .max_positions = 48,
                   .sliding_window = family.has("sliding_window") ? 5 : 0,
                   .full_layers = family.has("full_layers") ? 1 : 0,
                   .layer_pattern = !family.has("layer_pattern")   ? ""
                                    : family.has("sliding_window") ? "sf"
                                                                   : "ffn",
                   .attention_bias = family.has("attention_bias"),
                   .mlp_bias = family.has("mlp_bias"),
                   .num_experts = family.has("num_experts") ? 5 : 0});
    if (!family.has("parallel_residual")) continue;
    all.push_back(all.back());
    all.back().parallel_residual = false;
  }
  return all;
}

Model make_model(const weights::ModelConfig& config, Purpose purpose) {
  at::set_num_threads(1);  // So small that threads only wait for each other.
  Model model(config, at::kCPU, purpose);
  model.initialise(5);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{11});
  const at::Tensor& values_P = model.parameters().values_P();
  values_P.add_(at::randn(values_P.sizes(), generator, values_P.options()), 0.1);
  return model;
}

at::Tensor tokens(int64_t rows, int64_t length) {
  return (at::arange(rows * length, at::kLong) * 7919 + 13)
      .remainder(kVocabulary)
      .view({rows, length});
}

at::Tensor random_like(const at::Tensor& x) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{3});
  return at::randn(x.sizes(), generator, x.options());
}

/// Numbers of layers, block by block.
const std::vector<std::vector<int64_t>> kSplits = {{4}, {1, 1, 1, 1}, {2, 2}, {3, 1}, {1, 3}};

/// What crosses from one block to the next: numbers, and no autograd.
at::Tensor sent(const at::Tensor& x) { return x.detach().clone(); }

class Blocks {
 public:
  Blocks(const Decoder& decoder, const std::vector<int64_t>& split)
      : decoder_(decoder), split_(split) {}

  at::Tensor forward(const at::Tensor& tokens_BT) {
    at::Tensor x_BTC = run({}, [&](const at::Tensor&) { return decoder_.embed(tokens_BT, {}); });
    int64_t begin = 0;
    for (const int64_t count : split_) {
      x_BTC = run(x_BTC, [&](at::Tensor y_BTC) {
        for (int64_t i = begin; i < begin + count; ++i) y_BTC = decoder_.layer(i, y_BTC, {});
        return y_BTC;
      });
      begin += count;
    }
    return run(x_BTC, [&](const at::Tensor& y_BTC) { return decoder_.finish(y_BTC); });
  }

  void backward(at::Tensor gradient_BTC) {
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      block->output.backward(gradient_BTC);
      if (block->input.defined()) gradient_BTC = sent(block->input.grad());
    }
  }

 private:
  struct Block {
    at::Tensor input;
    at::Tensor output;
  };

  template <typename Function>
  at::Tensor run(const at::Tensor& x_BTC, const Function& function) {
    const at::Tensor input = x_BTC.defined() ? sent(x_BTC).set_requires_grad(true) : x_BTC;
    blocks_.push_back({input, function(input)});
    return blocks_.back().output;
  }

  const Decoder& decoder_;
  const std::vector<int64_t>& split_;
  std::vector<Block> blocks_;
};

TEST(DecoderTest, AnySplitHasTheBitsOfTheWholeForwardsAndBackwards) {
  for (const weights::ModelConfig& config : varieties()) {
    SCOPED_TRACE(config.architecture);
    const Model model = make_model(config, Purpose::kTraining);
    const at::Tensor tokens_BT = tokens(3, 33);
    const at::Tensor whole_BTC = model.hidden_BTC(tokens_BT);
    const at::Tensor dhidden_BTC = random_like(whole_BTC);
    const at::Tensor gradients_P = model.parameters().gradients_P();
    whole_BTC.backward(dhidden_BTC);
    const at::Tensor wanted_P = gradients_P.clone();
    EXPECT_GT(wanted_P.abs().max().item<double>(), 0);
    for (const std::vector<int64_t>& split : kSplits) {
      gradients_P.zero_();
      Blocks blocks(model.decoder(), split);
      EXPECT_TRUE(at::equal(blocks.forward(tokens_BT), whole_BTC)) << split.size();
      blocks.backward(dhidden_BTC);
      EXPECT_TRUE(at::equal(gradients_P, wanted_P)) << split.size();
    }
  }
}

/// Each block keeps the keys and values of its own layers.
TEST(DecoderTest, AnySplitHasTheBitsOfTheWholeWithCaches) {
  const at::NoGradGuard no_grad;
  for (const weights::ModelConfig& config : varieties()) {
    SCOPED_TRACE(config.architecture);
    const Model model = make_model(config, Purpose::kInference);
    const Decoder& decoder = model.decoder();
    const at::Tensor text_1T = tokens(1, 20);
    for (const std::vector<int64_t>& split : kSplits) {
      const auto new_cache = [&] { return KvCache(config, at::kCPU); };
      std::vector<KvCache> whole = {new_cache(), new_cache()};  // Of two rows.
      std::vector<std::vector<KvCache>> parts(split.size() + 1);
      for (std::vector<KvCache>& rows : parts) rows = {new_cache(), new_cache()};
      const auto rows_of = [](std::vector<KvCache>& caches, int64_t first, int64_t second) {
        return std::vector<CachedRow>{{&caches[0], first}, {&caches[1], second}};
      };
      int64_t begin = 0;
      for (const auto& [first, second] :
           std::vector<std::pair<int64_t, int64_t>>{{7, 3}, {1, 1}, {1, 4}, {1, 1}}) {
        const at::Tensor tokens_1T = text_1T.narrow(1, begin, first + second);
        for (std::vector<KvCache>& caches : parts) {
          for (const CachedRow& row : rows_of(caches, first, second)) {
            ASSERT_TRUE(row.cache->prepare(row.num_tokens));
          }
        }
        const at::Tensor wanted = model.hidden_1TC(tokens_1T, rows_of(whole, first, second));
        at::Tensor x = decoder.embed(tokens_1T, rows_of(parts.back(), first, second));
        int64_t index = 0;
        for (size_t block = 0; block < split.size(); ++block) {
          const auto rows = rows_of(parts[block], first, second);
          x = sent(x);
          for (int64_t i = 0; i < split[block]; ++i) x = decoder.layer(index++, x, rows);
        }
        for (std::vector<KvCache>& caches : parts) {
          for (const CachedRow& row : rows_of(caches, first, second)) {
            row.cache->advance(row.num_tokens);
          }
        }
        EXPECT_TRUE(at::equal(decoder.finish(sent(x)), wanted)) << split.size() << ", " << begin;
        begin += first + second;
      }
    }
  }
}

}  // namespace
}  // namespace atl::model
