#pragma once
// Requests wait here until it is their turn. Thread-safe.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/openai/fair_shares.h"

namespace atl::openai {

class Admission {
 public:
  /// A request's place, given back when it goes. Must not outlive the admission.
  class Place {
   public:
    Place(Admission& admission, FairShares::Ticket ticket)
        : admission_(admission), ticket_(ticket) {}
    ~Place() { admission_.leave(ticket_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    /// Whether it is its turn, within that patience.
    bool wait(Duration patience) { return admission_.wait(ticket_, patience); }

   private:
    Admission& admission_;
    const FairShares::Ticket ticket_;
  };

  Admission(FairShares::Limits limits, std::vector<double> shares)
      : shares_(limits, std::move(shares)) {}

  /// Throws ApiError: 429 where too many wait.
  std::unique_ptr<Place> apply(size_t key, int64_t texts, int64_t bytes);
  /// Texts that are made, and requests that wait.
  std::pair<int64_t, int64_t> counts() const;

 private:
  bool wait(FairShares::Ticket ticket, Duration patience);
  void leave(FairShares::Ticket ticket);

  mutable Mutex mutex_;
  Condition changed_;
  FairShares shares_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::openai
