#pragma once
// For tests of training runs: what a run of a tiny model on a few lines of text is made of.
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "atoll/data/corpus.h"
#include "atoll/data/pack.h"
#include "atoll/island/materials.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer_trainer.h"

namespace atl::island {

class SmallRun {
 public:
  SmallRun() {
    tokenizer::WordCounts words;
    words.add("one two three four one two three");
    std::ofstream(tokenizer_file())
        << train_tokenizer(words, {.vocab_size = 264, .min_frequency = 2}, [](int64_t) {});
    std::filesystem::create_directory(folder_ / "text");
    for (int i = 10; i < 60; ++i) {
      std::ofstream(folder_ / "text" / (std::to_string(i) + ".txt"))
          << "one two three four " << i << "\n";
    }
    const data::Corpus corpus({.inputs = {(folder_ / "text").string()}});
    data::pack(corpus, tokenizer::Tokenizer::load(tokenizer_file()), folder_ / "store",
               {.validation_share = 0.3}, [](const auto&) {});
  }

  const TestFolder& folder() const { return folder_; }

  static run::RunConfig config(int64_t steps, const method::SyncOptions& sync) {
    run::RunConfig config;
    config.model = {.vocab_size = 264,
                    .hidden_size = 16,
                    .intermediate_size = 32,
                    .num_layers = 1,
                    .num_heads = 2,
                    .num_kv_heads = 1,
                    .max_positions = 16};
    config.train.steps = steps;
    config.train.batch_rows = 4;
    config.train.sequence_length = 8;
    config.train.eval_rows = 2;
    config.train.log_every = 1;
    config.train.threads = 1;
    config.sync = sync;
    return config;
  }

  /// The model has its first weights, the same each time.
  Materials materials(const run::RunConfig& config, at::Device device = at::kCPU) const {
    data::Mixture mixture = data::Mixture::open(folder_ / "store");
    const int64_t end = mixture.end_of_text();
    Materials materials{.mixture = std::move(mixture),
                        .tokenizer = tokenizer::Tokenizer::load(tokenizer_file()),
                        .model = model::Model(config.model, device, model::Purpose::kTraining),
                        .texts = {.ids = {.ends = {end}}, .files = {}}};
    materials.model.initialise(1);
    return materials;
  }

 private:
  std::filesystem::path tokenizer_file() const { return folder_ / "tokenizer.json"; }

  TestFolder folder_;
};

}  // namespace atl::island
