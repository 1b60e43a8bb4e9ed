#include "atoll/serve/text_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

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

template <typename Listener, typename Make>
TextDesk::Id TextDesk::submit(const std::vector<int64_t>& text, Listener& listener,
                              const Make& make) {
  std::string fault = fault_of(text, context_, vocab_size_);
  const MutexLock lock(mutex_);
  const Id id = ++last_id_;
  if (!closed_.empty()) {
    listener.failed({.kind = Refusal::Kind::kUnavailable, .message = closed_});
    return id;
  }
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
  wake();
  return id;
}

TextDesk::Id TextDesk::generate(decoding::GenerationRequest request,
                                std::shared_ptr<decoding::Listener> listener) {
  return submit(request.prompt, *listener, [&](Id id) {
    return std::make_unique<Answer>(id, std::move(request), vocab_size_, context_, listener);
  });
}

TextDesk::Id TextDesk::embed(std::vector<int64_t> text, uint64_t tenant,
                             std::shared_ptr<decoding::EmbeddingListener> listener) {
  return submit(text, *listener, [&](Id id) {
    return std::make_unique<Embedding>(id, std::move(text), tenant, listener);
  });
}

void TextDesk::cancel(Id id) {
  const MutexLock lock(mutex_);
  if (id == 0 || id > last_id_) return;
  if (std::erase_if(arrived_, [&](const auto& each) { return each->id() == id; }) > 0) return;
  cancelled_.insert(id);
  wake();
}

void TextDesk::purge(uint64_t tenant) {
  const MutexLock lock(mutex_);
  purged_.insert(tenant);
  wake();
}

void TextDesk::shut_down(const std::string& reason) {
  const MutexLock lock(mutex_);
  closed_ = end_ = reason;
  wake();
}

decoding::GeneratorStatus TextDesk::status() const {
  const MutexLock lock(mutex_);
  decoding::GeneratorStatus status = status_;
  status.num_waiting += std::ssize(arrived_);
  return status;
}

}  // namespace atl::serve
