#include "atoll/serve/local_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

using decoding::Refusal;

/// Why a text can never be read.
std::string fault_of(std::span<const int64_t> text, int64_t context, int64_t vocab_size) {
  if (text.empty()) return "the prompt has no tokens";
  if (std::ssize(text) > context) {
    return fmt::format("the prompt has {} tokens and the model's context {}", text.size(), context);
  }
  const auto over =
      std::ranges::find_if(text, [&](int64_t id) { return id < 0 || id >= vocab_size; });
  if (over == text.end()) return {};
  return fmt::format("the prompt has the id {}, and the model's ids are below {}", *over,
                     vocab_size);
}

}  // namespace

LocalGenerator::LocalGenerator(const model::Model& model, const EngineOptions& options)
    : engine_(model, options),
      context_(engine_.context()),
      vocab_size_(model.config().vocab_size),
      status_(engine_.status()),
      thread_([this] { run(); }) {}

LocalGenerator::~LocalGenerator() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

template <typename Listener, typename Make>
LocalGenerator::Id LocalGenerator::submit(std::vector<int64_t>& text, Listener& listener,
                                          const Make& make) {
  std::string fault = fault_of(text, context_, vocab_size_);
  const MutexLock lock(mutex_);
  const Id id = ++last_id_;
  if (!fault.empty()) {
    listener.failed({.kind = Refusal::Kind::kInvalid, .message = std::move(fault)});
    return id;
  }
  if (status_.num_waiting + std::ssize(arrived_) >= kMaxWaiting) {
    listener.failed({.kind = Refusal::Kind::kBusy,
                     .message = fmt::format("{} requests wait already", kMaxWaiting),
                     .retry_after = std::chrono::seconds(1)});
    return id;
  }
  try {
    arrived_.push_back(make(id));
  } catch (const std::exception& error) {
    listener.failed({.kind = Refusal::Kind::kInvalid, .message = error.what()});
    return id;
  }
  changed_.notify_all();
  return id;
}

LocalGenerator::Id LocalGenerator::generate(decoding::GenerationRequest request,
                                            std::shared_ptr<decoding::Listener> listener) {
  return submit(request.prompt, *listener, [&](Id id) {
    return std::make_unique<Answer>(id, std::move(request), vocab_size_, context_, listener);
  });
}

LocalGenerator::Id LocalGenerator::embed(std::vector<int64_t> text,
                                         std::shared_ptr<decoding::EmbeddingListener> listener) {
  return submit(text, *listener,
                [&](Id id) { return std::make_unique<Embedding>(id, std::move(text), listener); });
}

void LocalGenerator::cancel(Id id) {
  const MutexLock lock(mutex_);
  if (id == 0 || id > last_id_) return;
  if (std::erase_if(arrived_, [&](const auto& each) { return each->id() == id; }) > 0) return;
  cancelled_.insert(id);
  changed_.notify_all();
}

decoding::GeneratorStatus LocalGenerator::status() const {
  const MutexLock lock(mutex_);
  decoding::GeneratorStatus status = status_;
  status.num_waiting += std::ssize(arrived_);
  return status;
}

void LocalGenerator::run() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) {
      return stops_ || !engine_.is_idle() || !arrived_.empty() || !cancelled_.empty();
    });
    if (stops_) return;
    for (auto& sequence : std::exchange(arrived_, {})) engine_.add(std::move(sequence));
    engine_.drop(std::exchange(cancelled_, {}));
    lock.unlock();
    engine_.read();
    lock.lock();
    engine_.drop(std::exchange(cancelled_, {}));
    engine_.give();
    status_ = engine_.status();
  }
}

}  // namespace atl::serve
