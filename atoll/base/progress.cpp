#include "atoll/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace atl {

ProgressBar::ProgressBar(std::string title, double total, const Clock& clock)
    : title_(std::move(title)),
      total_(total),
      clock_(clock),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(clock.now()),
      drawn_(clock.now()) {}

ProgressBar::~ProgressBar() {
  draw(done_, note_);
  if (terminal_) std::fputc('\n', stderr);
}

void ProgressBar::update(double done, const std::string& note) {
  done_ = done;
  note_ = note;
  const Time now = clock_.now();
  const Duration pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (drew_ && now - drawn_ < pause) return;
  if (!drew_ && !terminal_ && now - start_ < pause) return;
  drawn_ = now;
  drew_ = true;
  draw(done, note);
}

void ProgressBar::draw(double done, const std::string& note) {
  std::string line = title_;
  if (total_ > 0) {
    const double share = std::clamp(done / total_, 0.0, 1.0);
    const double elapsed = seconds(clock_.now() - start_);
    if (terminal_) {
      const auto filled = static_cast<size_t>(share * 24);
      line += " [" + std::string(filled, '#') + std::string(24 - filled, '.') + "]";
    }
    line += fmt::format(" {:3.0f} %", share * 100);
    if (share > 0 && share < 1) line += " left " + format_duration(elapsed * (1 / share - 1));
  }
  if (!note.empty()) line += "  " + note;
  if (terminal_) {
    std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto total = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  if (total >= 3600) {
    return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  }
  return fmt::format("{:02}:{:02}", total / 60, total % 60);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_count(double count) {
  if (std::abs(count) < 1000) return fmt::format("{:.0f}", count);
  if (std::abs(count) < 1e6) return fmt::format("{:.1f}k", count / 1e3);
  if (std::abs(count) < 1e9) return fmt::format("{:.2f}M", count / 1e6);
  return fmt::format("{:.2f}G", count / 1e9);
}

}  // namespace atl
