#pragma once
// One live line on stderr for long work: a bar on a terminal, a plain line now and then elsewhere.
#include <string>

#include "atoll/base/clock.h"

namespace atl {

/// Not thread-safe. The last state stays on the terminal when it is destroyed.
class ProgressBar {
 public:
  /// `total` in any unit; 0 when unknown.
  ProgressBar(std::string title, double total, const Clock& clock);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Draws at most ten times a second (every five seconds when stderr is not a terminal).
  void update(double done, const std::string& note = {});

 private:
  void draw(double done, const std::string& note);

  std::string title_;
  double total_;
  const Clock& clock_;
  bool terminal_;
  Time start_;
  Time drawn_;
  bool drew_ = false;
  double done_ = 0;
  std::string note_;
};

/// "1:02:03" or "02:03".
std::string format_duration(double seconds);
/// "1.2 kB", "3.4 MB", ... (powers of 1000).
std::string format_bytes(double bytes);
/// "980", "12.3k", "4.56M".
std::string format_count(double count);

}  // namespace atl
