#pragma once
// Large memory that comes and goes again and again, as with each round: what was let go of is used
// again, for fresh pages cost more time than what is done in them.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/base/page_array.h"

namespace atl {

/// Thread-safe. What was taken may outlive the pool and be let go of on any thread.
class PagePool {
 public:
  using Pages = PageArray<std::byte>;

  /// Keeps at most so many bytes that nobody has; of what is too much the oldest goes.
  explicit PagePool(size_t max_spare_bytes) : spare_(std::make_shared<Spare>(max_spare_bytes)) {}

  /// At least so many bytes, at most twice as many; not initialised. Throws std::bad_alloc.
  std::shared_ptr<Pages> take(size_t num_bytes) {
    std::unique_ptr<Pages> pages = spare_->find(num_bytes);
    if (pages == nullptr) pages = std::make_unique<Pages>(num_bytes);
    return {pages.release(), [spare = std::weak_ptr(spare_)](Pages* released) {
              std::unique_ptr<Pages> owned(released);
              if (const auto still = spare.lock()) still->keep(std::move(owned));
            }};
  }

  /// What nobody has.
  size_t spare_bytes() const {
    const MutexLock lock(spare_->mutex);
    return spare_->bytes;
  }

 private:
  struct Spare {
    std::unique_ptr<Pages> find(size_t num_bytes) {
      const MutexLock lock(mutex);
      auto best = arrays.end();
      for (auto it = arrays.begin(); it != arrays.end(); ++it) {
        const bool fits = (*it)->size() >= num_bytes && (*it)->size() / 2 <= num_bytes;
        if (fits && (best == arrays.end() || (*it)->size() <= (*best)->size())) best = it;
      }
      if (best == arrays.end()) return nullptr;
      std::unique_ptr<Pages> found = std::move(*best);
      arrays.erase(best);
      bytes -= found->size();
      return found;
    }
    void keep(std::unique_ptr<Pages> pages) {
      if (pages->size() < kLeastBytes || pages->size() > max_bytes) return;
      std::vector<std::unique_ptr<Pages>> too_much;  // Unmapped without the lock.
      const MutexLock lock(mutex);
      bytes += pages->size();
      arrays.push_back(std::move(pages));
      while (bytes > max_bytes) {
        bytes -= arrays.front()->size();
        too_much.push_back(std::move(arrays.front()));
        arrays.erase(arrays.begin());
      }
    }

    explicit Spare(size_t most) : max_bytes(most) {}

    const size_t max_bytes;
    Mutex mutex;
    size_t bytes ATOLL_GUARDED_BY(mutex) = 0;
    std::vector<std::unique_ptr<Pages>> arrays ATOLL_GUARDED_BY(mutex);  // The oldest first.
  };

  /// What is smaller the heap has at hand as well.
  static constexpr size_t kLeastBytes = size_t{1} << 20;

  std::shared_ptr<Spare> spare_;
};

}  // namespace atl
