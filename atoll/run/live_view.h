#pragma once
// Several islands on one terminal: a line each, redrawn in place; plain lines now and then where
// stderr is not a terminal. LibTorch-free.
#include <string>
#include <vector>

#include "atoll/base/clock.h"

namespace atl::run {

class LiveView {
 public:
  LiveView(const std::vector<std::string>& names, const Clock& clock);
  ~LiveView();
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;
  void update(size_t row, const std::string& text);
  /// To be called now and then for a row whose next text is awaited: when it takes long, says so.
  void remind(size_t row);
  /// Prints whole lines that stay: the rows go on below them.
  void say(const std::string& lines);

 private:
  struct Row {
    std::string name;
    std::string text;
    Time updated{};
    std::string note;  // What remind() adds to the text.
    // Without a terminal: what was printed last, and when.
    std::string shown;
    Time printed{};
  };
  void draw();

  std::vector<Row> rows_;
  const Clock& clock_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace atl::run
