#include "atoll/openai/admission.h"

#include <chrono>

#include "atoll/openai/api_error.h"

namespace atl::openai {
namespace {

constexpr Duration kRetryAfter = std::chrono::seconds(2);

}  // namespace

std::unique_ptr<Admission::Place> Admission::apply(size_t key, int64_t texts, int64_t bytes) {
  const MutexLock lock(mutex_);
  const auto ticket = shares_.apply(key, texts, bytes);
  if (!ticket) {
    ApiError error(429, "", "too many requests wait here: try again in a moment", "busy");
    error.retry_after = kRetryAfter;
    throw error;
  }
  return std::make_unique<Place>(*this, *ticket);
}

std::pair<int64_t, int64_t> Admission::counts() const {
  const MutexLock lock(mutex_);
  return {shares_.num_running(), shares_.num_waiting()};
}

bool Admission::wait(FairShares::Ticket ticket, Duration patience) {
  MutexLock lock(mutex_);
  return changed_.wait_for(lock, patience,
                           [&]() ATOLL_REQUIRES(mutex_) { return shares_.is_running(ticket); });
}

void Admission::leave(FairShares::Ticket ticket) {
  {
    const MutexLock lock(mutex_);
    shares_.leave(ticket);
  }
  changed_.notify_all();
}

}  // namespace atl::openai
