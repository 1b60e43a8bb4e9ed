#include "atoll/serve/local_generator.h"

#include <utility>

#include "atoll/model/spinning.h"

namespace atl::serve {

LocalGenerator::LocalGenerator(const model::Model& model, const EngineOptions& options)
    : LocalGenerator(std::make_unique<Engine>(model, options), model.config().vocab_size) {}

LocalGenerator::LocalGenerator(std::unique_ptr<Engine> engine, int64_t vocab_size)
    : TextDesk(engine->context(), vocab_size), engine_(std::move(engine)) {
  {
    const MutexLock lock(mutex_);
    set_status(engine_->status());
  }
  model::release_team();  // Of who has read the model.
  thread_ = std::thread([this] { run(); });
}

LocalGenerator::~LocalGenerator() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void LocalGenerator::purge(uint64_t tenant) {
  engine_->purge_kept(tenant);
  TextDesk::purge(tenant);
}

void LocalGenerator::run() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&]() ATOLL_REQUIRES(mutex_) { return stops_ || !engine_->is_idle() || has_news(); });
    if (stops_) return;
    for (const uint64_t tenant : take_purged()) engine_->purge(tenant);
    for (auto& sequence : take_arrived()) engine_->add(std::move(sequence));
    engine_->drop(take_cancelled());
    if (const std::string reason = take_end(); !reason.empty()) engine_->end(reason);
    lock.unlock();
    engine_->read();
    lock.lock();
    engine_->drop(take_cancelled());
    engine_->give();
    set_status(engine_->status());
  }
}

}  // namespace atl::serve
