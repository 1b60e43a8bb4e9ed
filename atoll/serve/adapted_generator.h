#pragma once
// A model with one of its adapters, as those see it who ask: a model of its own. Texts of all go to
// one generator, which reads them together.
#include <memory>
#include <utility>
#include <vector>

#include "atoll/decoding/generator.h"

namespace atl::serve {

/// Thread-safe, as generators are.
class AdaptedGenerator final : public decoding::Generator {
 public:
  /// `adapter`: its number there, from 1 on.
  AdaptedGenerator(std::shared_ptr<decoding::Generator> all, uint64_t adapter)
      : all_(std::move(all)), adapter_(adapter) {}

  int64_t context() const override { return all_->context(); }
  int64_t vocab_size() const override { return all_->vocab_size(); }
  Id generate(decoding::GenerationRequest request,
              std::shared_ptr<decoding::Listener> listener) override {
    request.adapter = adapter_;
    return all_->generate(std::move(request), std::move(listener));
  }
  Id embed(std::vector<int64_t> /*text*/, uint64_t /*tenant*/,
           std::shared_ptr<decoding::EmbeddingListener> listener) override {
    listener->failed({.kind = decoding::Refusal::Kind::kInvalid,
                      .message = "embeddings are made without an adapter: ask for the model by its "
                                 "own name"});
    return 0;
  }
  void cancel(Id id) override { all_->cancel(id); }
  bool may_round() const override { return all_->may_round(); }
  /// All is counted once, where it is done.
  decoding::GeneratorStatus status() const override { return {}; }

 private:
  const std::shared_ptr<decoding::Generator> all_;
  const uint64_t adapter_;
};

}  // namespace atl::serve
