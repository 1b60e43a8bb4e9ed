#pragma once
// What Prometheus asks for: counts and histograms since the start. The accumulators are pure; the
// whole is thread-safe.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/decoding/generator.h"

namespace atl::openai {

/// How many values were at most each bound. Of one thread.
class Histogram {
 public:
  /// Ascending.
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void add(double value);
  /// In Prometheus' text format.
  std::string text(std::string_view name, std::string_view help) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // Of each bucket alone; the last is for all above.
  double sum_ = 0;
};

class Metrics {
 public:
  Metrics();
  void count_request(const std::string& endpoint, int status);
  void add_wait(Duration time);         // For its turn.
  void add_first_token(Duration time);  // Since the request came.
  void add_gap(Duration time);          // Between two tokens of a text.
  void add_request(Duration time);      // Until all is answered.

  /// What else is known at the moment of asking.
  struct Now {
    int64_t num_running = 0;  // Texts.
    int64_t num_waiting = 0;  // Requests.
    std::vector<std::pair<std::string, decoding::GeneratorStatus>> models;
  };
  std::string text(const Now& now) const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_ ATOLL_GUARDED_BY(mutex_);
  Histogram wait_ ATOLL_GUARDED_BY(mutex_);
  Histogram first_token_ ATOLL_GUARDED_BY(mutex_);
  Histogram gap_ ATOLL_GUARDED_BY(mutex_);
  Histogram request_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::openai
