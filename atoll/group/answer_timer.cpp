#include "atoll/group/answer_timer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace atl::group {
namespace {

constexpr Duration kLongestPeriod = std::chrono::milliseconds(1000);
/// A process that was stopped itself, and goes on, gives the store time to answer.
constexpr int64_t kFewestLooks = 5;

}  // namespace

AnswerTimer::AnswerTimer(Duration limit, const Clock& clock,
                         std::function<void(Duration silence)> give_up)
    : limit_(limit), clock_(clock), give_up_(std::move(give_up)), last_answer_(clock.now()) {
  thread_ = std::thread([this] { run(); });
}

AnswerTimer::~AnswerTimer() {
  stop();
  thread_.join();
}

void AnswerTimer::answered() {
  const MutexLock lock(mutex_);
  last_answer_ = clock_.now();
  num_looks_ = 0;
}

void AnswerTimer::stop() {
  const MutexLock lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

void AnswerTimer::run() {
  const Duration period = std::min(kLongestPeriod, limit_ / kFewestLooks);
  MutexLock lock(mutex_);
  while (!ends_) {
    const Duration silence = clock_.now() - last_answer_;
    if (silence >= limit_ && ++num_looks_ >= kFewestLooks) {
      lock.unlock();
      give_up_(silence);
      return;
    }
    changed_.wait_for(lock, period);
  }
}

}  // namespace atl::group
