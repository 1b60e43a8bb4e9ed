#include "atoll/collective/session_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace atl::collective {
namespace {

constexpr Duration kCancelInterval = std::chrono::milliseconds(100);

}  // namespace

template <typename Change>
void SessionBoard::publish(Change change) ATOLL_UNCHECKED {
  {
    const MutexLock lock(mutex_);
    change();
  }
  changed_.notify_all();  // Who is woken need not wait for the lock.
}

/// Blocks until `done()` holds (under the mutex) or the run has failed.
template <typename Done>
Result<void> SessionBoard::wait_until(Done done) ATOLL_UNCHECKED {
  MutexLock lock(mutex_);
  while (!done() && !failure_) changed_.wait(lock);
  if (done()) return {};
  return tl::unexpected(*failure_);
}

/// The same before the run begins, when the user may still change their mind.
template <typename Done>
Result<void> SessionBoard::wait_before_start(Done done, const char* what) ATOLL_UNCHECKED {
  MutexLock lock(mutex_);
  while (!done() && !failure_) {
    changed_.wait_for(lock, kCancelInterval);
    // What has come counts: the others begin with this island.
    if (!done() && cancelled_()) {
      return failure(fmt::format("interrupted while waiting for {}", what));
    }
  }
  if (done()) return {};
  return tl::unexpected(*failure_);
}

void SessionBoard::welcomed(const std::string& run, const std::string& config) {
  publish([&]() ATOLL_REQUIRES(mutex_) {
    run_ = run;
    config_ = config;
    is_welcome_ = true;
  });
}

void SessionBoard::started(const StartInfo& info) {
  publish([&]() ATOLL_REQUIRES(mutex_) { start_ = info; });
}

void SessionBoard::committed(const Commit& commit, bool begun) {
  publish([&]() ATOLL_REQUIRES(mutex_) { mailbox_.committed(commit, begun); });
}

void SessionBoard::leased(const std::vector<swarm::Units>& units) {
  publish([&]() ATOLL_REQUIRES(mutex_) { mailbox_.leased(units); });
}

void SessionBoard::called(const DueRound& due) {
  publish([&]() ATOLL_REQUIRES(mutex_) { mailbox_.called(due); });
}

void SessionBoard::reinstated(int64_t step) {
  publish([&]() ATOLL_REQUIRES(mutex_) { mailbox_.reinstated(step); });
}

void SessionBoard::fetched(int32_t fragment, Result<FetchedState> state) {
  publish([&]() ATOLL_REQUIRES(mutex_) { fetched_.emplace(fragment, std::move(state)); });
}

void SessionBoard::left() {
  publish([&]() ATOLL_REQUIRES(mutex_) { has_left_ = true; });
}

void SessionBoard::failed(const std::string& reason, swarm::Ending ending) {
  publish([&]() ATOLL_REQUIRES(mutex_) {
    failure_ = Failure{reason};
    ending_ = ending;
  });
}

Result<void> SessionBoard::wait_for_welcome() {
  return wait_before_start([&]() ATOLL_REQUIRES(mutex_) { return is_welcome_; }, "the coordinator");
}

Result<void> SessionBoard::wait_for_start() {
  return wait_before_start([&] { return start_.has_value(); }, "the other islands");
}

Result<void> SessionBoard::wait_until_left() {
  return wait_until([&]() ATOLL_REQUIRES(mutex_) { return has_left_; });
}

Result<Commit> SessionBoard::take_commit(int64_t round) {
  auto waited = wait_until([&]() ATOLL_REQUIRES(mutex_) { return mailbox_.is_decided(round); });
  if (!waited) return tl::unexpected(waited.error());
  const MutexLock lock(mutex_);
  return mailbox_.take_commit(round);
}

Result<FetchedState> SessionBoard::take_state(int32_t fragment) {
  auto waited = wait_until([&]() ATOLL_REQUIRES(mutex_) { return fetched_.contains(fragment); });
  if (!waited) return tl::unexpected(waited.error());
  const MutexLock lock(mutex_);
  return std::move(fetched_.extract(fragment).mapped());
}

Result<int64_t> SessionBoard::next_unit() {
  auto waited = wait_until([&]() ATOLL_REQUIRES(mutex_) { return mailbox_.has_units(); });
  if (!waited) return tl::unexpected(waited.error());
  const MutexLock lock(mutex_);
  if (failure_) return tl::unexpected(*failure_);
  return *mailbox_.take_unit();
}

std::optional<Commit> SessionBoard::take_missed() {
  const MutexLock lock(mutex_);
  return mailbox_.take_missed();
}

std::optional<DueRound> SessionBoard::take_due() {
  const MutexLock lock(mutex_);
  return mailbox_.take_due();
}

std::optional<int64_t> SessionBoard::take_position() {
  const MutexLock lock(mutex_);
  return mailbox_.take_position();
}

void SessionBoard::note_begun(int64_t round) {
  const MutexLock lock(mutex_);
  mailbox_.note_begun(round);
}

bool SessionBoard::is_committed(int64_t round) const {
  const MutexLock lock(mutex_);
  return mailbox_.is_decided(round);
}

bool SessionBoard::is_decided(int64_t round) const {
  const MutexLock lock(mutex_);
  return failure_ || mailbox_.is_decided(round);
}

swarm::Ending SessionBoard::ending() const {
  const MutexLock lock(mutex_);
  return ending_;
}

}  // namespace atl::collective
