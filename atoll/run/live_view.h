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

 private:
  void draw();

  std::vector<std::string> names_;
  std::vector<std::string> texts_;
  std::vector<std::string> shown_;  // Without a terminal: what was printed last.
  std::vector<Time> printed_;       // Without a terminal: when each row was printed last.
  const Clock& clock_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace atl::run
