#include "atoll/run/records.h"

#include <chrono>
#include <utility>

namespace atl::run {
namespace {

constexpr std::chrono::seconds kShowEvery{5};

}  // namespace

Records::Records(std::filesystem::path folder, const Clock& clock,
                 std::function<void(const Progress&)> on_progress, EventSink events)
    : folder_(std::move(folder)),
      clock_(clock),
      on_progress_(std::move(on_progress)),
      events_(std::move(events)) {}

void Records::begin(int64_t step) {
  metrics_.emplace(folder_, step, events_);
  for (const Progress& progress : std::exchange(waiting_, {})) metrics_->add(progress);
  for (const std::string& line : std::exchange(waiting_rounds_, {})) metrics_->add_round(line);
}

void Records::add(const Progress& progress) {
  if (metrics_) {
    metrics_->add(progress);
  } else {
    waiting_.push_back(progress);
  }
  if (progress.val_loss) validation_ = progress.val_loss;
  show(progress);
}

void Records::add_round(const std::string& line) {
  if (metrics_) {
    metrics_->add_round(line);
  } else {
    waiting_rounds_.push_back(line);
  }
}

void Records::show(Progress progress) {
  progress.val_loss = validation_;
  shown_ = clock_.now();
  if (on_progress_) on_progress_(progress);
}

bool Records::is_stale() const { return clock_.now() - shown_ >= kShowEvery; }

}  // namespace atl::run
