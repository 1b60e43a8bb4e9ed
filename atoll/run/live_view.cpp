#include "atoll/run/live_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "atoll/base/progress.h"

namespace atl::run {
namespace {

constexpr std::chrono::seconds kQuiet{15};       // From then on a row that is awaited says so,
constexpr std::chrono::seconds kPrintQuiet{60};  // and without a terminal no more often.

}  // namespace

LiveView::LiveView(std::vector<std::string> names, const Clock& clock)
    : names_(std::move(names)),
      texts_(names_.size()),
      shown_(names_.size()),
      printed_(names_.size()),
      updated_(names_.size()),
      notes_(names_.size()),
      clock_(clock),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

LiveView::~LiveView() {
  if (terminal_) return;
  for (size_t row = 0; row < names_.size(); ++row) {
    if (texts_[row] != shown_[row]) fmt::print(stderr, "{}  {}\n", names_[row], texts_[row]);
  }
}

void LiveView::update(size_t row, const std::string& text) {
  const bool first = texts_[row].empty();
  texts_[row] = text;
  updated_[row] = clock_.now();
  notes_[row].clear();
  if (terminal_) {
    draw();
  } else if (first || clock_.now() - printed_[row] >= std::chrono::seconds(10)) {
    printed_[row] = clock_.now();
    shown_[row] = text;
    fmt::print(stderr, "{}  {}\n", names_[row], text);
  }
}

void LiveView::remind(size_t row) {
  const Duration quiet = clock_.now() - updated_[row];
  if (quiet < kQuiet) return;
  const std::string note = "  no news for " + format_duration(seconds(quiet));
  if (terminal_) {
    if (note == notes_[row]) return;  // They count whole seconds.
    notes_[row] = note;
    draw();
  } else if (clock_.now() - printed_[row] >= kPrintQuiet) {
    printed_[row] = clock_.now();
    fmt::print(stderr, "{}  {}{}\n", names_[row], texts_[row], note);
  }
}

void LiveView::draw() {
  winsize window{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const size_t width = known ? window.ws_col : 1000;  // A line that wraps would not be drawn over.
  std::string out = drawn_ ? fmt::format("\x1b[{}A", names_.size()) : "";
  for (size_t row = 0; row < names_.size(); ++row) {
    const std::string line = fmt::format("{}  {}{}", names_[row], texts_[row], notes_[row]);
    out += "\r\x1b[K" + line.substr(0, width - 1) + "\n";
  }
  drawn_ = true;
  std::fputs(out.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace atl::run
