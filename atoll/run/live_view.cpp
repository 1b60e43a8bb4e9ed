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

LiveView::LiveView(const std::vector<std::string>& names, const Clock& clock)
    : clock_(clock), terminal_(::isatty(STDERR_FILENO) == 1) {
  for (const std::string& name : names) rows_.push_back({.name = name});
}

LiveView::~LiveView() {
  if (terminal_) return;
  for (const Row& row : rows_) {
    if (row.text != row.shown) fmt::print(stderr, "{}  {}\n", row.name, row.text);
  }
}

void LiveView::update(size_t index, const std::string& text) {
  Row& row = rows_[index];
  const bool first = row.text.empty();
  row.text = text;
  row.updated = clock_.now();
  row.note.clear();
  if (terminal_) {
    draw();
  } else if (first || clock_.now() - row.printed >= std::chrono::seconds(10)) {
    row.printed = clock_.now();
    row.shown = text;
    fmt::print(stderr, "{}  {}\n", row.name, text);
  }
}

void LiveView::remind(size_t index) {
  Row& row = rows_[index];
  const Duration quiet = clock_.now() - row.updated;
  if (quiet < kQuiet) return;
  const std::string note = "  no news for " + format_duration(seconds(quiet));
  if (terminal_) {
    if (note == row.note) return;  // They count whole seconds.
    row.note = note;
    draw();
  } else if (clock_.now() - row.printed >= kPrintQuiet) {
    row.printed = clock_.now();
    fmt::print(stderr, "{}  {}{}\n", row.name, row.text, note);
  }
}

void LiveView::say(const std::string& lines) {
  fmt::print(stderr, "{}", lines);
  drawn_ = false;
}

void LiveView::draw() {
  winsize window{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const size_t width = known ? window.ws_col : 1000;  // A line that wraps would not be drawn over.
  std::string out = drawn_ ? fmt::format("\x1b[{}A", rows_.size()) : "";
  for (const Row& row : rows_) {
    const std::string line = fmt::format("{}  {}{}", row.name, row.text, row.note);
    out += "\r\x1b[K" + line.substr(0, width - 1) + "\n";
  }
  drawn_ = true;
  std::fputs(out.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace atl::run
