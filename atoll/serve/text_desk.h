#pragma once
// Where texts for a model are handed in, from any thread, and taken up by the one thread that has
// the model: what the generators of this folder have in common.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/decoding/generator.h"
#include "atoll/serve/sequence.h"

namespace atl::serve {

class TextDesk : public decoding::Generator {
 public:
  static constexpr int64_t kMaxWaiting = 1024;  // Texts; more are refused.

  int64_t context() const override { return context_; }
  int64_t vocab_size() const override { return vocab_size_; }
  Id generate(decoding::GenerationRequest request,
              std::shared_ptr<decoding::Listener> listener) override;
  Id embed(std::vector<int64_t> text, uint64_t tenant,
           std::shared_ptr<decoding::EmbeddingListener> listener) override;
  void cancel(Id id) override;
  void purge(uint64_t tenant) override;
  decoding::GeneratorStatus status() const override;
  /// Whether all of the model is there for those who ask.
  virtual bool is_served() const { return true; }
  /// All that is under way, and whatever comes later, fails with that reason.
  void shut_down(const std::string& reason);

 protected:
  using Arrived = std::vector<std::unique_ptr<Sequence>>;

  TextDesk(int64_t context, int64_t vocab_size) : context_(context), vocab_size_(vocab_size) {}

  /// There is something to take; from any thread, with the mutex held.
  virtual void wake() ATOLL_REQUIRES(mutex_) = 0;
  bool has_news() const ATOLL_REQUIRES(mutex_) {
    return !arrived_.empty() || !cancelled_.empty() || !purged_.empty() || !end_.empty();
  }
  /// Why it was shut down, once; else empty.
  std::string take_end() ATOLL_REQUIRES(mutex_) { return std::exchange(end_, {}); }
  Arrived take_arrived() ATOLL_REQUIRES(mutex_) { return std::exchange(arrived_, {}); }
  std::set<Id> take_cancelled() ATOLL_REQUIRES(mutex_) { return std::exchange(cancelled_, {}); }
  std::set<uint64_t> take_purged() ATOLL_REQUIRES(mutex_) { return std::exchange(purged_, {}); }
  void set_status(const decoding::GeneratorStatus& status) ATOLL_REQUIRES(mutex_) {
    status_ = status;
  }

  mutable Mutex mutex_;  // Held while listeners are called.

 private:
  /// Takes a sequence that make(id) gives, or says why not.
  template <typename Listener, typename Make>
  Id submit(const std::vector<int64_t>& text, Listener& listener, const Make& make);

  const int64_t context_;
  const int64_t vocab_size_;
  Arrived arrived_ ATOLL_GUARDED_BY(mutex_);
  std::set<Id> cancelled_ ATOLL_GUARDED_BY(mutex_);
  std::set<uint64_t> purged_ ATOLL_GUARDED_BY(mutex_);  // Tenants.
  decoding::GeneratorStatus status_ ATOLL_GUARDED_BY(mutex_);
  Id last_id_ ATOLL_GUARDED_BY(mutex_) = 0;
  std::string closed_ ATOLL_GUARDED_BY(mutex_);  // Why nothing is taken any more.
  std::string end_ ATOLL_GUARDED_BY(mutex_);     // The same, until the thread knows.
};

}  // namespace atl::serve
