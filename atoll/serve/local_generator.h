#pragma once
// A Generator of one model in this process: a thread with an Engine.
#include <memory>
#include <thread>

#include "atoll/model/model.h"
#include "atoll/serve/engine.h"
#include "atoll/serve/text_desk.h"

namespace atl::serve {

class LocalGenerator final : public TextDesk {
 public:
  /// Nobody else uses the model while this one lives. Throws as Engine does.
  LocalGenerator(const model::Model& model, const EngineOptions& options);
  /// What is under way is given up, unheard.
  ~LocalGenerator() override;
  LocalGenerator(const LocalGenerator&) = delete;
  LocalGenerator& operator=(const LocalGenerator&) = delete;

  /// What is on disk is gone once it returns.
  void purge(uint64_t tenant) override;

 private:
  LocalGenerator(std::unique_ptr<Engine> engine, int64_t vocab_size);
  void wake() override ATOLL_REQUIRES(mutex_) { changed_.notify_all(); }
  void run();

  const std::unique_ptr<Engine> engine_;  // The thread's.
  Condition changed_;
  bool stops_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::serve
