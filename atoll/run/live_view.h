#pragma once
// Several islands on one terminal: a line each, redrawn in place; plain lines now and then where
// stderr is not a terminal. LibTorch-free.
#include <string>
#include <vector>

#include "atoll/base/clock.h"

namespace atl::run {

class LiveView {
 public:
  LiveView(std::vector<std::string> names, const Clock& clock);
  ~LiveView();
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;
  void update(size_t row, const std::string& text);
  /// To be called now and then for a row whose next text is awaited: when it takes long, says so.
  void remind(size_t row);

 private:
  void draw();

  std::vector<std::string> names_;
  std::vector<std::string> texts_;
  std::vector<std::string> shown_;  // Without a terminal: what was printed last.
  std::vector<Time> printed_;       // Without a terminal: when each row was printed last.
  std::vector<Time> updated_;
  std::vector<std::string> notes_;  // What remind() adds to a row's text.
  const Clock& clock_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace atl::run
