#pragma once
// A Generator of one model in this process: a thread with an Engine.
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/decoding/generator.h"
#include "atoll/model/model.h"
#include "atoll/serve/engine.h"

namespace atl::serve {

class LocalGenerator final : public decoding::Generator {
 public:
  static constexpr int64_t kMaxWaiting = 1024;  // Texts; more are refused.

  /// Nobody else uses the model while this one lives. Throws as Engine does.
  LocalGenerator(const model::Model& model, const EngineOptions& options);
  /// What is under way is given up, unheard.
  ~LocalGenerator() override;
  LocalGenerator(const LocalGenerator&) = delete;
  LocalGenerator& operator=(const LocalGenerator&) = delete;

  int64_t context() const override { return context_; }
  int64_t vocab_size() const override { return vocab_size_; }
  Id generate(decoding::GenerationRequest request,
              std::shared_ptr<decoding::Listener> listener) override;
  Id embed(std::vector<int64_t> text,
           std::shared_ptr<decoding::EmbeddingListener> listener) override;
  void cancel(Id id) override;
  decoding::GeneratorStatus status() const override;

 private:
  /// Takes a sequence that make(id) gives, or says why not.
  template <typename Listener, typename Make>
  Id submit(std::vector<int64_t>& text, Listener& listener, const Make& make);
  void run();

  Engine engine_;  // The thread's.
  const int64_t context_;
  const int64_t vocab_size_;

  mutable Mutex mutex_;  // Held while listeners are called.
  Condition changed_;
  std::vector<std::unique_ptr<Sequence>> arrived_ ATOLL_GUARDED_BY(mutex_);
  std::set<Id> cancelled_ ATOLL_GUARDED_BY(mutex_);
  decoding::GeneratorStatus status_ ATOLL_GUARDED_BY(mutex_);
  Id last_id_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool stops_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::serve
